"""The guards of the topology taken out one at a time, and the test that has to notice.

`python -m tests.replication.run_mutants topology:` plants them.
"""

from __future__ import annotations

GUARD = "topology/guard.py"
HOLDERS = "model/members/holders.py"
LEAVING = "governor/rules/leaving.py"
MACHINE = "storage/raft_db/state_machine.py"
PROPOSALS = "node/consensus/proposals.py"
VOTERS = "governor/rules/voters.py"
FORGOTTEN, BOOT = "node/boot/forgotten.py", "node/boot/steps.py"
WAITING = "governor/waiting.py"

UNIT = "tests/topology/test_guard.py::test_"
SIM = "tests/sim_cluster/test_topology_changes.py::test_"
GARBAGE = "tests/storage/test_garbage_entries.py::test_"
WAITS = "tests/governor/test_waiting.py::test_"
NAMINGS = "tests/sim_cluster/test_namings.py::test_"
PLAN = "tests/governor/test_plan.py::test_"
STATUS = "tests/node/test_governor_status.py::test_"
FILES = "tests/sim_cluster/test_expelled_files.py::test_"

#: (rule, name, file, old, new, test)
OF_THE_TOPOLOGY: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        *("join", "topology: rows of another cluster are brought along", FORGOTTEN),
        *("if path.exists() and _noted_home(path) !=", "if 0 and _noted_home(path) !="),
        FILES + "rows_of_another_cluster_of_the_same_name_come_to_nobody",
    ),
    (
        *("join", "topology: rows of another replicaset are brought along", FORGOTTEN),
        *('return f"{cluster_uuid} {place.replicaset_uuid}"', "return cluster_uuid"),
        FILES + "rows_stay_with_their_replicaset",
    ),
    (
        *("join", "topology: who has rows and knows nobody founds a cluster", BOOT),
        *("state.founded or has_rows(self.directory)", "state.founded"),
        FILES + "a_founder_that_knows_nobody_says_that_its_file_is_gone",
    ),
    (
        *("expel", "topology: who leaves takes the quorum along", VOTERS),
        *("        _keep_quorum(view, voters)\n", "        pass\n"),
        PLAN + "who_leaves_takes_no_quorum_along",
    ),
    (
        *("expel", "topology: an heir that is leaving itself is counted", HOLDERS),
        *("is_staying(member) and member.name in", "member.name in"),
        UNIT + "the_second_of_two_copies_may_not_follow_while_the_first_is_leaving",
    ),
    (
        *("expel", "topology: an heir without the rows is counted", HOLDERS),
        *("is_staying(member) and member.name in replicaset.members", "is_staying(member)"),
        UNIT + "the_only_copy_may_not_go",
    ),
    (
        *("expel", "topology: a dead heir is counted for a master", HOLDERS),
        *(
            "if any(member is master for member in staying):",
            "if True:",
        ),
        UNIT + "a_dead_master_may_not_go_while_the_other_copy_is_away",
    ),
    (
        *("expel", "topology: entries on their way are not looked at", PROPOSALS),
        *(
            '        if conflict is not None:\n            raise CasConflict(f"found a',
            '        if False:\n            raise CasConflict(f"found a',
        ),
        SIM + "a_decision_counts_the_entries_on_their_way",
    ),
    (
        *("expel", "topology: SQL goes round the guard", PROPOSALS),
        *("                self._check(request)\n", ""),
        SIM + "sql_meets_the_same_guard_as_expel",
    ),
    (
        *("expel", "topology: one statement for both copies is judged one by one", GUARD),
        *(
            "why_not_expel(after, instance, sharded_tiers, force)",
            "why_not_expel(cluster, instance, sharded_tiers, force)",
        ),
        UNIT + "both_copies_may_not_go_in_one_statement",
    ),
    (
        *("expel", "topology: the governor does not ask again", LEAVING),
        *("if may_give_up(view, instance):", "if True:"),
        SIM + "an_heir_that_dies_after_the_yes_holds_the_expulsion_up_and_is_named",
    ),
    (
        *("expel", "topology: force by UPDATE", GUARD),
        *("if reason == EXPEL_BY_FORCE != earlier.target_state_reason and not force:", "if False:"),
        UNIT + "rows_are_given_up_by_force_alone",
    ),
    (
        *("expel", "topology: force divides all buckets anew", LEAVING),
        *("if replicaset.tier in view.sharded_tiers:", "if False:"),
        SIM + "force_names_what_is_lost_and_gives_only_that_away",
    ),
    (
        *("expel", "topology: the first of two takes the replicaset along", LEAVING),
        *(
            "if replicaset is not None and not _others(view, instance):",
            "if replicaset is not None and not view.cluster.members(replicaset.name):",
        ),
        WAITS + "of_two_expelled_instances_the_first_does_not_take_the_replicaset_along",
    ),
    (
        *("names", "topology: an expelled master stays named", LEAVING),
        *("elif replicaset is not None and instance.name in _named(replicaset):", "elif False:"),
        SIM + "a_namesake_of_an_expelled_master_is_no_master",
    ),
    (
        *("names", "topology: who has no rows may be named master", GUARD),
        *("if master and master in named and master not in replicaset.members:", "if False:"),
        UNIT + "who_lacks_the_rows_is_not_made_master",
    ),
    (
        *("names", "topology: a lease goes by name", "node/rows/leases.py"),
        *('if request.uuid not in ("", instance.uuid):', "if False:"),
        "tests/sim_cluster/test_data_rules.py::test_a_lease_is_bound_to_uuid_incarnation_and_epoch",
    ),
    (
        *(
            "names",
            "topology: an empty instance counts for its replicaset",
            "governor/rules/rising.py",
        ),
        *("if view.cluster.master_of(replicaset.name) is None:", "if False:"),
        "tests/governor/test_plan.py"
        "::test_without_a_master_nobody_is_taken_for_one_who_has_the_rows",
    ),
    (
        *("values", "topology: values are not checked", PROPOSALS),
        *("        check_ops(ops.dml_of(request.op))\n", ""),
        SIM + "a_typo_is_refused_and_the_cluster_lives_on",
    ),
    (
        *("values", "topology: an entry that cannot be read stops the instance", MACHINE),
        *("if _is_of_the_machine(problem):", "if True:"),
        GARBAGE + "an_entry_that_cannot_be_understood_has_no_effect_and_is_told",
    ),
    (
        *("values", "topology: a bad row is let in", MACHINE),
        *(
            "                    check_readable(change.table, change.new)\n",
            "                    pass\n",
        ),
        GARBAGE + "an_entry_that_cannot_be_understood_has_no_effect_and_is_told",
    ),
    (
        *("values", "topology: a full disk is taken for a bad entry", MACHINE),
        *("return not isinstance(problem, _OF_THE_ENTRY)", "return False"),
        GARBAGE + "trouble_of_the_disk_is_not_taken_for_a_bad_entry",
    ),
    (
        *(
            "values",
            "topology: a refused entry stays in the picture of events",
            "storage/raft_db/event_log.py",
        ),
        *(
            "after = advanced(before, done.changes, position)",
            "after = self._cluster = advanced(before, done.changes, position)",
        ),
        GARBAGE + "what_was_refused_is_not_told_later",
    ),
    (
        *("values", "topology: a row that is there stops the instance", "model/tables/pictures.py"),
        *("            fixed, found = mended(table, row)\n", "            raise\n"),
        GARBAGE + "a_row_that_is_there_and_cannot_be_understood_stops_nobody",
    ),
    (
        *("values", "topology: the governor decides from a guess", "governor/plan.py"),
        *("if view.cluster.problems:", "if False:"),
        GARBAGE + "a_row_that_is_there_and_cannot_be_understood_stops_nobody",
    ),
    (
        *("limits", "topology: an entry of any length is appended", PROPOSALS),
        *("                check_entry_size(len(data))\n", ""),
        SIM + "an_entry_past_the_limit_is_refused_before_it_is_appended",
    ),
    (
        *("limits", "topology: a long entry is refused on the way only", PROPOSALS),
        *("if size > limits.ENTRY_BYTES:", "if size > limits.FRAME_BYTES:"),
        "tests/model/test_limits.py::test_an_entry_past_the_limit_is_refused_with_a_hint",
    ),
    (
        *("idle", "topology: a replicaset without a master is not named", WAITING),
        *("        found += _without_master(view, replicaset)\n", "        pass\n"),
        WAITS + "a_replicaset_whose_members_are_all_dead_is_named",
    ),
    (
        *("idle", "topology: an expulsion that waits is not named", WAITING),
        *("        found += _leaving(view, instance)\n", "        pass\n"),
        WAITS + "an_expulsion_that_would_lose_rows_waits_and_says_for_whom",
    ),
    (
        *(
            "idle",
            "topology: a path through a dead instance counts",
            "node/steering/governor_runner.py",
        ),
        *(
            "living = {edge for edge in edges if edge[0] in alive and edge[1] in alive}",
            "living = edges",
        ),
        STATUS + "a_path_through_a_dead_instance_is_named",
    ),
    (
        *(
            "idle",
            "topology: a fault of the plan ends the leader",
            "node/steering/governor_runner.py",
        ),
        *("            except Exception as bug:", "            except CairnError as bug:"),
        STATUS + "a_governor_that_cannot_plan_says_so_and_lives_on",
    ),
    (
        *("leader", "topology: a learner names a dead leader", "node/consensus/raft_runner.py"),
        *("return 0 if self._leader_is_silent else self.core.leader", "return self.core.leader"),
        "tests/sim_cluster/test_no_quorum.py::test_a_learner_notices_that_nobody_leads_and_says_so",
    ),
    (
        *("boot", "topology: a certificate is looked at after joining", "cli/instance/run.py"),
        *("            from_config(config)  # before", "            pass  # before"),
        "tests/cluster/test_topology_safety.py"
        "::test_a_start_that_is_refused_for_its_certificate_leaves_no_member",
    ),
    (
        *("1", "topology: a majority waits for a master that is gone", LEAVING),
        *("if heirs or not _is_sync(view, replicaset):", "if heirs or True:"),
        NAMINGS + "a_majority_that_comes_up_without_its_master_names_another",
    ),
    (
        *("1", "topology: replicas that come up leave an async master behind", LEAVING),
        *("if heirs or not _is_sync(view, replicaset):", "if heirs:"),
        NAMINGS + "where_a_master_may_have_had_more_its_replicas_wait_for_it",
    ),
    (
        *("boot", "topology: who joins ends when nobody can tell", "node/boot/steps.py"),
        *("PeerRefused, OutcomeUnknown, NoQuorum,", "PeerRefused, NoQuorum,"),
        "tests/sim_cluster/test_joining.py"
        "::test_who_joins_while_no_majority_is_there_asks_again_and_is_one_member",
    ),
)
