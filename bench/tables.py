"""A table with many rows, on either database: SQL past the engine, its size, and rows that are copies of the first."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import psycopg

from holdfast import Holdfast


class Table:
    """A table of the engine, by its name without the prefix. `{}` in a statement is that table."""

    def __init__(self, url: str, app: Holdfast, name: str) -> None:
        self.url, self.app, self.name = url, app, name
        self.is_sqlite = url.startswith("sqlite")

    def sql(self, text: str) -> Any:
        if self.is_sqlite:
            with closing(sqlite3.connect(self.app.store.where, isolation_level=None)) as db:
                return db.execute(text.replace("{}", f"holdfast_{self.name}")).fetchall()
        with psycopg.connect(self.url, autocommit=True) as db:
            cursor = db.execute(text.replace("{}", f"holdfast.{self.name}").encode())
            return cursor.fetchall() if cursor.description else []

    def numbers(self, rows: int) -> str:
        """A relation with a column `n` from 1: one for each row that is a copy of the first."""
        if not self.is_sqlite:
            return f"generate_series(1, {rows - 1}) n"
        counted = f"with recursive c (n) as (select 1 union all select n + 1 from c where n < {rows - 1})"
        return f"({counted} select n from c)"

    def size(self) -> int:
        """Of SQLite's whole file; of the table with its indexes on PostgreSQL."""
        if self.is_sqlite:
            ((pages, page),) = self.sql(
                "select p.page_count, s.page_size from pragma_page_count p, pragma_page_size s"
            )
            return int(pages * page)
        ((size,),) = self.sql("select pg_total_relation_size('{}')")
        return int(size)
