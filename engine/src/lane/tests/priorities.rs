//! Urgent tasks and others.

use super::*;
use crate::batch::{BatchOptions, Priority};
use Priority::{High, Low, Medium};

const BLOCK: u64 = 4096;

fn submit(bench: &Bench, priority: Priority, requests: &[Request]) -> Batch {
    let options = BatchOptions { capacity: requests.len() as u32, priority, ..BatchOptions::default() };
    let batch = bench.engine.allocate_batch_with(options).unwrap();
    bench.engine.submit(&batch, requests).unwrap();
    batch
}

/// The most reads of priority `load` that are executed between the submit of a write of high priority and the write,
/// whenever that is submitted: all are of the block that it writes, and so tell by what they found when they were executed.
fn most_before_a_write(load: Priority, entries: u32) -> usize {
    const READS: u64 = 20_000;
    const LBA: u64 = 512;
    const NOT_READ: u8 = 0xEE;
    let mut bench = Bench::open("model:size=1MiB,lba=512", entries, ((READS + 1) * LBA) as usize);
    bench.memory.view().fill(NOT_READ);
    let reads: Vec<_> = (0..READS).map(|at| bench.read(at * LBA, 0, LBA)).collect();
    let batch = submit(&bench, load, &reads);
    // How many reads have found what was there before the write of `value`.
    let before = |bench: &Bench, value: u8| {
        let found = |at: u64| {
            let mut byte = [0];
            bench.memory.view().read((at * LBA) as usize, &mut byte);
            byte[0]
        };
        (0..READS).map(found).filter(|found| *found != NOT_READ && *found != value).count()
    };
    let mut most = 0;
    for value in 1..40 {
        for _ in 0..value % 7 {
            bench.lane.turn();
        }
        let executed = before(&bench, value);
        bench.memory.view().slice((READS * LBA) as usize, LBA as usize).fill(value);
        let write = submit(&bench, High, &[bench.write(READS * LBA, 0, LBA)]);
        run_until(&mut bench.lane, |_| write.overall().is_finished());
        most = most.max(before(&bench, value) - executed);
    }
    assert!(!batch.overall().is_finished(), "the load was over too soon");
    bench.run();
    bench.close();
    most
}

#[test]
fn few_commands_of_low_priority_are_before_one_of_high() {
    for entries in [4, 33, 256] {
        let most = most_before_a_write(Low, entries);
        assert!(most <= 32, "{most} low-priority commands at {entries} entries");
    }
    let most = most_before_a_write(Medium, 256);
    assert!((33..=64).contains(&most), "{most} of medium priority");
    // The control: of its own priority a whole queue is before it.
    let most = most_before_a_write(High, 256);
    assert!(most > 64, "{most} of its own");
}

#[test]
fn no_priority_starves() {
    for entries in [2, 5, 33, 256] {
        let mut bench = Bench::open("model:size=64MiB,store=null", entries, 16 * BLOCK as usize);
        let high = submit(&bench, High, &bench.descending(10_000));
        let medium = submit(&bench, Medium, &bench.descending(400));
        let low = submit(&bench, Low, &bench.descending(400));
        run_until(&mut bench.lane, |_| medium.overall().is_finished() && low.overall().is_finished());
        assert!(!high.overall().is_finished(), "{entries} entries: they had to wait for all of it");
        bench.run();
        for (batch, tasks) in [(&high, 10_000), (&medium, 400), (&low, 400)] {
            assert_eq!(batch.overall(), BatchStatus { tasks, ended: tasks, unsuccessful: 0 });
        }
        bench.close();
    }
}

/// High before medium, medium before low, where all are submitted together.
#[test]
fn what_is_more_urgent_ends_first() {
    let mut bench = Bench::open("model:size=64MiB,store=null", 8, 16 * BLOCK as usize);
    let batches = [Low, Medium, High].map(|priority| submit(&bench, priority, &bench.descending(500)));
    let mut order = Vec::new();
    run_until(&mut bench.lane, |lane| {
        for (batch, priority) in batches.iter().zip([Low, Medium, High]) {
            if batch.overall().is_finished() && !order.contains(&priority) {
                order.push(priority);
            }
        }
        lane.is_idle()
    });
    assert_eq!(order, [High, Medium, Low]);
    bench.close();
}

#[test]
fn a_cancel_reaches_what_waits_for_its_turn() {
    let mut bench = Bench::open("model:size=64MiB,store=null", 8, 16 * BLOCK as usize);
    let high = submit(&bench, High, &bench.descending(1000));
    let low = submit(&bench, Low, &bench.descending(1000));
    bench.lane.turn();
    low.cancel();
    run_until(&mut bench.lane, |_| low.overall().is_finished());
    assert!(!high.overall().is_finished());
    bench.run();
    assert_eq!(high.overall().unsuccessful, 0);
    bench.close();
}
