//! The list of device tests on the tiers that need nothing but this process.

use tentpeg_tests::device_tests::{Ending, ModelTier, Table, list};

#[test]
fn every_device_test_on_every_tier() {
    let mut table = Table::default();
    table.run(&ModelTier::stepped());
    table.run(&ModelTier::threaded());
    println!("{table}");
    let (failed, skipped) = table.reasons();
    assert_eq!(skipped, [""; 0], "a model can be made to any order");
    assert_eq!(failed, [""; 0], "device tests failed");
}

/// A device that moves no byte is found out by each test that reads back what it wrote.
#[test]
fn a_forgetful_device_fails() {
    let forgetful = ModelTier::forgetful();
    for name in [
        "first and last block are read back",
        "a controller that is enabled again keeps its data",
        "2 MiB at offset 512 are one command",
        "2 MiB in 64 shuffled pieces at offset 0 are one command",
        "neighbours in memory at offset 4092 are one command",
        "a queue of 3 entries",
        "every slot with a list, reads and writes mixed",
        "a command that is refused leaves the queue usable",
        "MQES 2",
        "MDTS 1",
        "MPSMIN 4 with DSTRD 10",
    ] {
        let test = list().into_iter().find(|test| test.name == name).expect("a test of this name");
        match test.run(&forgetful) {
            Err(Ending::Failed(reason)) => assert!(reason.contains("would be right"), "{name}: {reason}"),
            other => panic!("{name} on a device that forgets: {other:?}"),
        }
    }
}
