"""What is kept of requests in a SQLite file: codes, counts and times, for whoever asks later. No text, no token IDs.

    request  one row for each finished request: the members of RequestFacts, and its class of reuse
    slot     what each slot held when rows were last written
    output   only when asked (`outputs=True`), for `toktier serve report`:
             position INTEGER PRIMARY KEY, prompt_digest BLOB, reused INTEGER, output TEXT, started REAL, request_id TEXT
             `prompt_digest`: of the prompt's token IDs and of all that decides what is sampled; equal ones are to be
             compared. `reused`: 1 where tokens of a slot were reused, else 0. `position`: bytes recorded so far.

The file may be lost, damaged, locked or full at any time: requests go on, what could not be written is counted and
shown (`state`), and the writer tries again. A request pays for one row in a bounded queue; a thread of its own has the
connection. Readers use `reading`, or any SQLite. Not here: what the numbers mean (`stats`), the report itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import sqlite3
import stat
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from toktier.errors import EnvironmentFault, StoreCorrupt, StoreFormatUnsupported, StoreNotFound, ToktierError
from toktier.labels import shown, shown_path
from toktier.router.request_facts import RequestFacts
from toktier.router.rows import SlotRow
from toktier.sessions.file_systems import is_network, type_of
from toktier.storage import PRIVATE, make_directory

FORMAT: Final = 1
APPLICATION_ID: Final = 0x746B7273

KEEP_ROWS = 100_000
KEEP_DAYS = 30.0
KEEP_OUTPUT_BYTES = 64 << 20
MAX_OUTPUT_BYTES = 1 << 20  # of one output: a longer one is counted as dropped
QUEUE_ROWS = 10_000
QUEUE_OUTPUT_BYTES = 8 << 20
MAX_WAL_BYTES = 32 << 20  # a reader that never ends keeps the log from being emptied
KEEP_DAMAGED = 4  # files set aside beside the database; with as many there, no further one is made

_PAUSE = 0.25  # seconds between two commits: rows that came meanwhile are one transaction
_TIMEOUT = 1.0  # seconds to wait for another writer; rows wait in the queue meanwhile
_RETRY_FIRST, _RETRY_LONGEST = 0.5, 60.0
_OVERHEAD = 128  # bytes of a row of outputs beside its text
_DELETED_AT_ONCE = 20_000
_DAMAGED = ".damaged-"
_SIDE_FILES = ("-wal", "-shm")
_DAY = 86_400.0

SCHEMA = """
CREATE TABLE request (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL, started REAL NOT NULL, route TEXT NOT NULL, stream INTEGER NOT NULL,
  upstream INTEGER NOT NULL, slot INTEGER, choice TEXT NOT NULL, unrouted TEXT, ids TEXT NOT NULL,
  outcome TEXT NOT NULL, status INTEGER, prompt_tokens INTEGER NOT NULL, generated_tokens INTEGER NOT NULL,
  predicted INTEGER NOT NULL, measured INTEGER, reuse TEXT NOT NULL, stale INTEGER NOT NULL, prompt_ms REAL,
  generated_ms REAL, first_byte_ms REAL, duration_ms REAL NOT NULL, router_ms REAL);
CREATE TABLE slot (
  upstream INTEGER NOT NULL, slot INTEGER NOT NULL, state TEXT NOT NULL, tokens INTEGER NOT NULL, sure INTEGER NOT NULL,
  held INTEGER NOT NULL, reuses INTEGER NOT NULL, last_use REAL, written REAL NOT NULL, PRIMARY KEY (upstream, slot)
) WITHOUT ROWID;
CREATE TABLE output (
  position INTEGER PRIMARY KEY, prompt_digest BLOB NOT NULL, reused INTEGER NOT NULL, output TEXT NOT NULL,
  started REAL NOT NULL, request_id TEXT NOT NULL);
"""
