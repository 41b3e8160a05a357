"""The short form of hack/soak; the invariants are those of hack/soaks/ledger.py.

The choices are the same in every run, so that a fault found here is met again; other seeds are for hack/soak.
What judges it is tried in test_soak_checkers.
"""

from hack.local.cluster import Cluster
from hack.soaks.crowd import KINDS
from hack.soaks.plan import Plan
from hack.soaks.soak import Soak

SECONDS = 60.0
SEED = 11


def test_invariants_hold_and_all_gangs_end_while_everything_fails(own_cluster: Cluster) -> None:
    print(f"seed {SEED}: as hack/soak --minutes {SECONDS / 60:g} --seed {SEED}")
    soak = Soak(own_cluster, Plan(SECONDS, SEED))
    assert soak.run() == [], f"seed {SEED}"
    # It did what it is for.
    assert soak.ledger.released > 30
    assert soak.done["API server restarts"] >= 1
    assert soak.done["leaders killed"] >= 1
    kinds = (*KINDS, *soak.crowd.more, "long", "preempting", "foreign preempting")
    assert min(soak.done[kind] for kind in kinds) >= 1
    assert soak.ledger.domains.seen >= 1
    assert soak.ledger.mounts.judged >= 1
    assert soak.reserved.holds >= 1, soak.reserved.summary
