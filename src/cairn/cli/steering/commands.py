"""What changes the cluster. Each command imports what it needs when it is run."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli.options import AsJson, Dsn, PasswordFile, Yes, a_share, finish

commands = typer.Typer()


@commands.command(short_help="Remove an instance from the cluster for good.")
def expel(
    instance: Annotated[str, typer.Argument(help="name or uuid")],
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    force: Annotated[bool, typer.Option("--force", help="even if rows are lost")] = False,
    yes: Yes = False,
    timeout: Annotated[float, typer.Option(help="seconds to wait for the end")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Remove an instance from the cluster for good, and wait until it is done.

    Example: cairn expel i4 --yes
    """
    from cairn.cli.asking import agreed
    from cairn.cli.steering.expel import run_expel

    def work() -> int:
        lost = ", and lose the rows that only it has" if force else ""
        if not agreed(f"expel {instance} for good{lost}?", yes=yes):
            typer.echo("nothing is changed")
            return 1
        return run_expel(
            instance, dsn, password_file, force=force, timeout_s=timeout, as_json=as_json
        )

    finish(work)


@commands.command(short_help="Make another instance the master of a replicaset.")
def switchover(
    replicaset: Annotated[str, typer.Argument(help="name or uuid")] = "",
    to: Annotated[
        str | None, typer.Option(help="which instance [default: the one that is least behind]")
    ] = None,
    spread: Annotated[
        bool, typer.Option("--spread", help="all replicasets: masters evenly over machines")
    ] = False,
    yes: Yes = False,
    timeout: Annotated[float, typer.Option(help="seconds to wait for the end")] = 60.0,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Make another instance the master of a replicaset, and wait until it is.

    Nothing that was acknowledged is lost; writes wait a moment. With --spread masters are moved
    until no failure domain (machine, where none is set) has more of them than it must.

    Example: cairn switchover default_1 --to i2 --yes
    """
    from cairn.cli.steering.switchover import run_spread, run_switchover
    from cairn.cli.talking import TalkProblem

    def work() -> int:
        if bool(replicaset) == spread or (spread and to is not None):
            raise TalkProblem("name a replicaset, with or without --to, or say --spread alone", 2)
        how = {"yes": yes, "as_json": as_json}
        if spread:
            return run_spread(dsn, password_file, **how, timeout_s=timeout)
        return run_switchover(replicaset, dsn, password_file, to=to, **how, timeout_s=timeout)

    finish(work)


@commands.command(short_help="Move all buckets of a replicaset to others, and back.")
def drain(
    replicaset: Annotated[str, typer.Argument(help="name or uuid")],
    back: Annotated[bool, typer.Option("--back", help="take it back")] = False,
    weight: Annotated[float, typer.Option(help="with --back: its share", callback=a_share)] = 1.0,
    yes: Yes = False,
    wait: Annotated[bool, typer.Option(help="until all have moved")] = True,
    timeout: Annotated[float, typer.Option(help="seconds to wait for the end")] = 86_400.0,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Move all buckets of a replicaset to others while clients work, and tell how far it is.

    Ctrl-C ends only the telling: the buckets go on moving. `--back` turns round.

    Example: cairn drain default_2 --yes
    """
    from cairn.cli.steering.drain import run_drain

    finish(
        lambda: run_drain(
            replicaset,
            dsn,
            password_file,
            back=weight if back else None,
            yes=yes,
            wait=wait,
            timeout_s=timeout,
            as_json=as_json,
        )
    )


@commands.command(short_help="Restart instances one after the other while clients work.")
def restart(
    instances: Annotated[list[str] | None, typer.Argument(help="names")] = None,
    rolling: Annotated[bool, typer.Option("--rolling", help="all instances")] = False,
    yes: Yes = False,
    timeout: Annotated[float, typer.Option(help="seconds for each instance")] = 120.0,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Restart instances one after the other, wherever they run, while clients work.

    A master hands over first, and the next one waits until everybody is Online and has caught
    up. It stops at the first thing that is wrong. `cairn run` stays and starts its instance anew,
    with the program as it is on disk then and the flags as they were.

    Example: cairn restart --rolling --yes
    """
    from cairn.cli.steering.restart import run_restart

    finish(
        lambda: run_restart(
            instances or [],
            dsn,
            password_file,
            rolling=rolling,
            yes=yes,
            timeout_s=timeout,
            as_json=as_json,
        )
    )


@commands.command(short_help="Automatic failover off: for work on machines and networks.")
def pause(dsn: Dsn = None, password_file: PasswordFile = None, as_json: AsJson = False) -> None:
    """Automatic failover off, until `cairn resume`. Moves of buckets go on.

    Whoever is silent keeps its place: a master that dies is not replaced, and its rows are away
    until it is back. What is asked for (SIGTERM, switchover, expel) is done as always. Raft
    elects leaders as always.

    Example: cairn pause
    """
    from cairn.cli.steering.failover import run_failover

    finish(lambda: run_failover(dsn, password_file, automatic=False, as_json=as_json))


@commands.command(short_help="Automatic failover on again.")
def resume(dsn: Dsn = None, password_file: PasswordFile = None, as_json: AsJson = False) -> None:
    """Automatic failover on again. Masters that are silent are replaced a moment later.

    Example: cairn resume
    """
    from cairn.cli.steering.failover import run_failover

    finish(lambda: run_failover(dsn, password_file, automatic=True, as_json=as_json))


@commands.command(short_help="Show, plan, pause and steer buckets that move.")
def rebalance(
    action: Annotated[
        str, typer.Argument(help="status, plan, pause, resume, weight or drain")
    ] = "status",
    replicaset: Annotated[str, typer.Argument(help="for weight and drain")] = "",
    weight: Annotated[
        float, typer.Argument(help="its share in proportion to others", callback=a_share)
    ] = 1.0,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="show it again every second")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="until nothing has to move")] = False,
) -> None:
    """Show which buckets move; plan what would follow; pause and resume; set weights; drain.

    Example: cairn rebalance drain default_1 --wait
    """
    from cairn.cli.steering.rebalance import run_rebalance

    finish(
        lambda: run_rebalance(
            dsn,
            password_file,
            action,
            name=replicaset,
            weight=weight,
            as_json=as_json,
            watch=watch,
            wait=wait,
        )
    )


@commands.command(short_help="Show, add, change and drop tiers.")
def tier(
    action: Annotated[str, typer.Argument(help="list, add, set or drop")] = "list",
    name: Annotated[str, typer.Argument(help="of the tier")] = "",
    replication_factor: Annotated[
        int | None, typer.Option(help="instances of each replicaset", min=1, max=31)
    ] = None,
    replication_mode: Annotated[str | None, typer.Option(help="async or sync")] = None,
    bucket_count: Annotated[int | None, typer.Option(help="of a new tier", min=0)] = None,
    release: Annotated[
        bool, typer.Option("--release", help="expel replicas above the new factor")
    ] = False,
    yes: Yes = False,
    dsn: Dsn = None,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Show tiers; add one to a running cluster; change how many copies it keeps, and how.

    Example: cairn tier set default --replication-factor 3
    """
    from cairn.cli.steering.tier import run_tier

    options = {
        "replication_factor": replication_factor,
        "replication_mode": replication_mode,
        "bucket_count": bucket_count,
    }
    finish(
        lambda: run_tier(
            dsn, password_file, action, name, options, release=release, yes=yes, as_json=as_json
        )
    )
