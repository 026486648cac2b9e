//! What one turn does, and whether it says that there was anything to do: whoever turns a lane gives the processor away, or
//! sleeps, where there was not.

use super::*;
use TransferState::Invalid;

const BLOCK: u64 = 4096;

/// Has the device do all that it can.
fn let_device_work(bench: &Bench) {
    for _ in 0..100 {
        bench.lane.pause();
    }
}

#[test]
fn a_turn_that_did_anything_says_so() {
    let mut bench = Bench::open("model:size=1MiB", 256, 16 * BLOCK as usize);
    assert!(!bench.lane.turn());
    // A quantum of 32 in each turn: the first takes the batch in, the others have nothing but their commands.
    let batch = bench.submit(&bench.descending(100));
    let busy: Vec<_> = (0..5).map(|_| bench.lane.turn()).collect();
    assert_eq!(busy, [true, true, true, true, false]);
    let_device_work(&bench);
    assert!(bench.lane.turn(), "completions, and nothing else");
    bench.run();
    assert!(batch.overall().is_finished() && !bench.lane.turn());
    // A completion, and a batch of which nothing is planned.
    bench.submit(&[bench.read(0, 0, BLOCK)]);
    assert!(bench.lane.turn());
    let_device_work(&bench);
    let refused = bench.submit(&[bench.read(0, 7, BLOCK)]);
    assert!(bench.lane.turn());
    assert!(states(&refused) == [Invalid] && bench.lane.is_idle());
    bench.close();
}

#[test]
fn what_a_turn_has_planned_the_device_knows_at_its_end() {
    let mut bench = Bench::open("model:size=1MiB", 16, BLOCK as usize);
    bench.submit(&[bench.read(0, 0, BLOCK)]);
    bench.lane.turn();
    let_device_work(&bench);
    assert_eq!(bench.engine.model_counters().unwrap().io_sqes, 1);
    bench.run();
    bench.close();
}

#[test]
fn a_port_says_which_device_it_serves() {
    let bench = Bench::striped(BLOCK as usize);
    for (number, port) in bench.lane.ports.iter().enumerate() {
        let name = port.watch.clock().function().name().to_owned();
        assert!(!name.is_empty());
        assert_eq!((usize::from(port.ground.lane), port.place()), (number, (name, None)), "a model is near no node");
    }
    bench.engine.close_with(bench.lane).unwrap();
}
