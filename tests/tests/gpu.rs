//! The checks that need a GPU, where there is one. Without, each part is named as skipped, with the reason.

use tentpeg_tests::device_tests::Ending;
use tentpeg_tests::gpu::run;

#[test]
fn every_check_passes_or_there_is_no_gpu() {
    for part in ["places", "copies", "kv", "model", "engine"] {
        match run(part, |row| println!("{row}")) {
            Ok(rows) => assert!(rows.iter().all(|row| !matches!(row.outcome, Err(Ending::Failed(_)))), "{part}"),
            Err(Ending::Skipped(reason)) => println!("{part}: skipped: {reason}"),
            Err(ending) => panic!("{part}: {ending}"),
        }
    }
}

#[test]
fn a_part_that_is_none_is_refused() {
    assert!(matches!(run("no such part", |_| ()), Err(Ending::Failed(reason)) if reason.contains("measure-model")));
}
