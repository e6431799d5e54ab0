"""The tables and their history."""

from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlmodel import SQLModel

from agent_ab.store import tables
from agent_ab.store.store import Store


def test_the_models_and_the_migrations_describe_the_same_tables(tmp_path: Path) -> None:
    assert tables.RunRow.__tablename__ == "run"
    Store(tmp_path / "runs.db").close()
    engine = create_engine(f"sqlite:///{tmp_path / 'runs.db'}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), SQLModel.metadata) == []
    engine.dispose()
