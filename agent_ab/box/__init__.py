"""Programs that run inside the box: standard library only, and they import nothing of ours."""
