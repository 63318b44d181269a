//! Deterministic simulation of a mount: programs that read it, other programs that change the source, and a network
//! and servers that fail and lie, all on one thread with a virtual clock.
//!
//! A seed decides everything. [`simulate`] opens a source of the simulated server as a mount does, sends the requests of
//! several programs as the FUSE session would, and ends with a calm time, in which nothing changes or fails. The source
//! has keys, or is a zip archive that is replaced. A disk cache can be there: its directory is shared with other mounts,
//! which are killed, its files are damaged, and its disk is full at times. It checks that
//!
//! - bytes are those of one version that was current within the time that caches may answer,
//! - a name is absent only if it was, and a listing has each name that was there all the time once,
//! - a copy of an array has each chunk of which its document speaks, or it fails (in every fourth seed),
//! - no request lasts longer than its deadline, and errors name its key,
//! - no two identical requests are in flight at once,
//! - permits, memory and single flights are free when nothing is requested, and nothing waits without end,
//! - all is read as it is after the failures, also by a mount that finds the disk cache of those before,
//! - a mount of an archive shows the version that was there when it was mounted, or fails.
//!
//! `ZARRFS_SIMULATION_SEEDS` is the number of seeds, from `ZARRFS_SIMULATION_FIRST` or 0. `ZARRFS_SIMULATION_SEED` runs
//! one seed and prints its trace.

mod archive;
mod content;
mod copy;
mod found;
mod program;
mod scenario;
mod session;
mod shown;
mod view_read;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use async_task::Task;

use crate::runtime;
use crate::runtime::simulated::{Mutation, Simulation, below, record};
use crate::store::simulated::Faults;
use crate::sync::Mutex;
use program::World;
use scenario::{Mount, Scenario};

/// The number of seeds in an ordinary run of all tests.
const DEFAULT_SEEDS: u64 = 200;
/// The lines of a trace that a failure shows.
const SHOWN_LINES: usize = 150;

/// A simulation that broke a rule.
#[derive(Debug)]
struct Failure {
    seed: u64,
    broken: Vec<String>,
}

/// Runs the simulation of a seed. Returns the rules that were broken, and the trace.
fn simulate(seed: u64) -> (Vec<String>, Vec<String>) {
    simulate_scenario(seed, Scenario::random, None)
}

/// Runs the simulation of a seed in a scenario that it makes, with a bug of the past.
fn simulate_scenario(
    seed: u64,
    scenario: fn() -> Scenario,
    mutation: Option<Mutation>,
) -> (Vec<String>, Vec<String>) {
    let simulation = Simulation::start(seed, mutation);
    let run = AssertUnwindSafe(|| {
        let mut scenario = scenario();
        // The number depends on no random number, so that the other seeds stay as they are.
        if seed.is_multiple_of(4) {
            scenario.copiers = 1 + seed / 4 % 3;
        }
        run(&simulation, scenario)
    });
    let broken = catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        vec![format!("panic: {}", text.unwrap_or_default())]
    });
    (broken, simulation.trace())
}

fn run(simulation: &Simulation, scenario: Scenario) -> Vec<String> {
    let scenario = Arc::new(scenario);
    if scenario.copiers > 0 && below(2) == 0 {
        scenario.writer.outgrow_consolidated();
    }
    // The values of the first version are old.
    simulation.settle(Duration::from_secs(60));
    let mut mounts = Vec::new();
    match mount(simulation, &scenario) {
        Ok(mounted) => mounts.push(mounted),
        Err(error) => return vec![format!("the mount failed: {error}")],
    }
    scenario.server.set_faults(Faults::random());
    run_programs(simulation, &scenario, &mounts[0].world);
    if scenario.copiers > 0 && scenario.archive.is_none() {
        // No document has more chunks than the listings of the calm time.
        scenario.writer.consolidate();
    }

    scenario.server.set_faults(Faults::none());
    if let Some(disk) = &scenario.disk {
        disk.repair();
    }
    // Longer than each deadline, and than the time that any cache answers.
    simulation.settle(Duration::from_secs(60));
    check_idle(&scenario, &mounts, "after the failures");
    if scenario.is_mounted_again() {
        if let Some(disk) = &scenario.disk {
            (0..below(2) * below(60)).for_each(|_| disk.damage());
            disk.repair();
        }
        match mount(simulation, &scenario) {
            Ok(mounted) => mounts.push(mounted),
            Err(error) => scenario.breaks(format!("the mount failed: {error}")),
        }
    }
    for mounted in &mounts {
        mounted.world.is_calm.store(true, Ordering::Relaxed);
        if scenario.broken.lock().is_empty() {
            let own = Arc::clone(&mounted.world);
            simulation.block_on(async move { own.run_calm().await });
        }
    }
    simulation.settle(Duration::from_secs(60));
    check_idle(&scenario, &mounts, "at the end");
    for open in mounts.iter().flat_map(Mount::open_handles) {
        scenario.breaks(open);
    }
    if let Some(disk) = &scenario.disk {
        let caches = mounts
            .iter()
            .filter_map(|mounted| mounted.source.disk.clone());
        let wrong = disk.check(&caches.collect::<Vec<_>>());
        wrong.into_iter().for_each(|what| scenario.breaks(what));
    }
    let mut broken = scenario.broken.lock().clone();
    broken.extend(scenario.server.broken());
    drop(mounts);
    if !simulation.settle(Duration::from_secs(3600)) {
        broken.push("something waits for a timer after the unmount".into());
    }
    broken
}

fn mount(simulation: &Simulation, scenario: &Arc<Scenario>) -> Result<Mount, String> {
    let own = Arc::clone(scenario);
    simulation.block_on(async move { own.mount().await })
}

/// Checks that nothing is in use where nothing is requested.
fn check_idle(scenario: &Scenario, mounts: &[Mount], when: &str) {
    for used in mounts.iter().flat_map(Mount::in_use) {
        scenario.breaks(format!("{when}: in use: {used}"));
    }
    for request in scenario.server.in_flight() {
        scenario.breaks(format!("{when}: in flight: {request}"));
    }
}

/// Runs programs that read and change the source at the same time.
fn run_programs(simulation: &Simulation, scenario: &Arc<Scenario>, world: &Arc<World>) {
    let mut programs = Vec::new();
    // Without other programs, directories are listed before any document is read.
    if scenario.copiers == 0 || below(2) == 0 {
        programs = readers(world);
    }
    for _ in 0..scenario.copiers {
        let world = Arc::clone(world);
        programs.push(runtime::spawn(async move {
            world.run_copies(1 + below(8)).await;
        }));
    }
    let writer = Arc::clone(&scenario.writer);
    programs.push(runtime::spawn(async move { writer.run_hot().await }));
    let writer = Arc::clone(&scenario.writer);
    let changes = match writer.archive() {
        // The first change ends all that a mount of an archive can read.
        Some(_) => below(2) * below(6),
        None => below(3) * below(10),
    };
    programs.push(runtime::spawn(async move {
        if changes > 0 {
            writer.run(changes).await;
        }
    }));
    if scenario.is_mounted_again() && below(3) > 0 {
        programs.push(runtime::spawn(run_killed_mounts(Arc::clone(scenario))));
    }
    if scenario.disk.is_some() && below(3) > 0 {
        programs.push(runtime::spawn(damage_disk(Arc::clone(scenario))));
    }
    simulation.block_on(async move {
        for program in programs {
            program.await;
        }
    });
}

/// Starts programs that read a mount.
fn readers(world: &Arc<World>) -> Vec<Task<()>> {
    let reader = |_| {
        let own = Arc::clone(world);
        runtime::spawn(async move { own.run(4 + below(10)).await })
    };
    (0..1 + below(5)).map(reader).collect()
}

async fn pause(most_millis: u64) {
    runtime::sleep(Duration::from_millis(below(most_millis))).await;
}

/// Mounts the source in other processes, one after the other, each of which is killed at some moment.
async fn run_killed_mounts(scenario: Arc<Scenario>) {
    for _ in 0..1 + below(3) {
        pause(3000).await;
        let own = Arc::clone(&scenario);
        let life = runtime::spawn(async move {
            if let Ok(mounted) = own.mount().await {
                for program in readers(&mounted.world) {
                    program.await;
                }
            }
        });
        let limit = Duration::from_millis(below(15_000));
        let end = runtime::timeout(limit, life).await;
        record(format!("* a mount has ended: {}", end.is_some()));
    }
}

async fn damage_disk(scenario: Arc<Scenario>) {
    for _ in 0..below(20) {
        pause(1500).await;
        if let Some(disk) = &scenario.disk {
            disk.damage();
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number")),
    )
}

fn report(failures: &[Failure]) -> String {
    let Some(first) = failures.first() else {
        return String::new();
    };
    let (_, trace) = simulate(first.seed);
    let from = trace.len().saturating_sub(SHOWN_LINES);
    let all: Vec<String> = failures
        .iter()
        .map(|failure| format!("{}: {}", failure.seed, failure.broken.join("; ")))
        .collect();
    format!(
        "{} seeds fail:\n{}\n\nthe end of the trace of {} (all of it: ZARRFS_SIMULATION_SEED={}):\n{}",
        failures.len(),
        all.join("\n"),
        first.seed,
        first.seed,
        trace[from..].join("\n")
    )
}

/// Runs `seeds` seeds from `first` on all cores; returns those that fail.
fn run_seeds(first: u64, seeds: u64) -> Vec<Failure> {
    let end = first.saturating_add(seeds);
    let (next, failures) = (AtomicU64::new(first), Mutex::<Vec<Failure>>::default());
    thread::scope(|scope| {
        for _ in 0..crate::machine::cores() {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || failures.lock().len() >= 20 {
                        return;
                    }
                    if seed > first && seed % 10_000 == 0 {
                        println!("seeds below {seed}");
                    }
                    let (broken, _) = simulate(seed);
                    if !broken.is_empty() {
                        println!("seed {seed}: {}", broken.join("; "));
                        failures.lock().push(Failure { seed, broken });
                    }
                }
            });
        }
    });
    let mut failures = failures.lock().drain(..).collect::<Vec<_>>();
    failures.sort_by_key(|failure| failure.seed);
    failures
}

#[test]
fn a_mount_keeps_its_promises_with_each_seed() {
    if let Some(seed) = number("ZARRFS_SIMULATION_SEED") {
        let (broken, trace) = simulate(seed);
        println!("{}", trace.join("\n"));
        assert!(broken.is_empty(), "seed {seed}: {}", broken.join("\n"));
        return;
    }
    let seeds = number("ZARRFS_SIMULATION_SEEDS").unwrap_or(DEFAULT_SEEDS);
    let first = number("ZARRFS_SIMULATION_FIRST").unwrap_or(0);
    let failures = run_seeds(first, seeds);
    assert!(failures.is_empty(), "{}", report(&failures));
}

/// Values of another version, and a key that was reported as absent after it was written. A change of the simulation
/// changes what a seed does, so the unit tests of `store::remote` have the first ones, too.
#[test]
fn seeds_that_found_bugs_find_none() {
    for seed in [4959, 20_989, 24_069, 96_846] {
        let (broken, _) = simulate(seed);
        assert!(broken.is_empty(), "seed {seed}: {}", broken.join("\n"));
    }
}

#[test]
fn a_seed_has_the_same_trace_each_time() {
    for seed in 0..20 {
        let (one, other) = (simulate(seed), simulate(seed));
        assert!(one.1.len() > 20, "seed {seed} does nothing");
        for (index, (line, again)) in one.1.iter().zip(&other.1).enumerate() {
            assert_eq!(line, again, "seed {seed}, line {index}");
        }
        assert_eq!(
            (one.0, one.1.len()),
            (other.0, other.1.len()),
            "seed {seed}"
        );
    }
}

/// Returns the first seed that finds a bug, and the rule that the bug breaks. The seed finds nothing without it.
fn first_seed_that_finds(mutation: Mutation) -> Option<(u64, String)> {
    let scenario = match mutation {
        Mutation::UncheckedBlock => Scenario::random,
        // The others are those of keys.
        _ => Scenario::of_keys,
    };
    let seeds = number("ZARRFS_SIMULATION_SEEDS").unwrap_or(DEFAULT_SEEDS);
    (0..seeds).find_map(|seed| {
        let rule = simulate_scenario(seed, scenario, Some(mutation))
            .0
            .into_iter()
            .next()?;
        let (without, _) = simulate_scenario(seed, scenario, None);
        assert!(
            without.is_empty(),
            "seed {seed} without {mutation:?}: {}",
            without.join("\n")
        );
        Some((seed, rule))
    })
}

#[test]
fn bugs_of_the_past_are_found_with_few_seeds() {
    for mutation in [
        Mutation::MixedVersions,
        Mutation::FirstPageOnly,
        Mutation::LeakedPermit,
        Mutation::UncheckedBlock,
    ] {
        let found = first_seed_that_finds(mutation);
        println!("{mutation:?} is found with seed and rule {found:?}");
        let (seed, rule) = found.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        assert!(
            !rule.starts_with("panic"),
            "{mutation:?}, seed {seed}: {rule}"
        );
    }
}
