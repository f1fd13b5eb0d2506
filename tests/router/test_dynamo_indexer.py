"""Beside Dynamo itself: block hashes are those of its runtime, and its indexer answers what the slots hold.

Needs the runtime (tests/support/dynamo_site.py) and network namespaces.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.router import indexer_scenarios
from tests.support.dynamo_site import required_dynamo, run_inside_namespace
from toktier.router.block_hashes import DynamoHasher, Identity

pytestmark = pytest.mark.full


@pytest.mark.parametrize("seed", range(20))
def test_e1_e2_e6_local_hashes_are_those_of_the_runtime(seed: int) -> None:
    runtime = required_dynamo()
    rng = random.Random(seed)
    for _ in range(50):
        ids = [rng.randrange(rng.choice([300, 150_000, 2**32])) for _ in range(rng.randrange(200))]
        size = rng.choice([1, 3, 4, 16, 64])
        lora, salt = rng.choice([None, "", "a", "ä" * 50]), rng.choice([None, "", "a", "tenant-7"])
        expected = runtime.compute_block_hash_for_seq(ids, size, None, lora, None, salt)
        hasher = DynamoHasher(size, Identity(lora_name=lora, cache_salt=salt))
        assert hasher.local_hashes(np.array(ids, dtype=np.uint32)) == expected


@pytest.mark.parametrize("scenario", list(indexer_scenarios.SCENARIOS))
def test_e4_the_indexer_answers_what_the_slots_hold(scenario: str, tmp_path: Path) -> None:
    required_dynamo()
    run_inside_namespace(Path(indexer_scenarios.__file__), str(tmp_path), scenario)
