use super::*;

#[test]
fn a_key_tells_its_cell_and_its_age() {
    let mut last = None;
    for segment in [0, 1, 65_535] {
        for path in Path::ALL {
            let key = Key::new(1_000, segment, path);
            assert_eq!((key.cell(), key.path()), (segment << PATH_BITS | path as usize, Some(path)));
            assert!(last < Some(key.cell()), "each has its own");
            last = Some(key.cell());
            assert_eq!((key.ticks_to(1_000), key.ticks_to(1_234)), (0, 234));
        }
    }
    // Six days later the counter of ticks has begun anew.
    let old = Key::new((1 << 45) - 10, 3, Path::Flush);
    assert_eq!(old.ticks_to((1 << 45) + 5), 15);
    assert_eq!((Key::NONE.path(), Key::default()), (None, Key::NONE));
}

#[test]
fn ticks_are_sixteen_nanoseconds() {
    assert_eq!((ticks(Duration::from_nanos(160)), ticks(Duration::from_secs(2))), (10, 125_000_000));
    assert_eq!(duration(ticks(Duration::from_micros(1))), Duration::from_nanos(992));
    assert_eq!(ticks(Duration::MAX), u64::MAX);
}

#[test]
fn each_cell_counts_for_itself() {
    let shared = PortStatistics::new(2);
    let mut recorder = Recorder::new(Arc::clone(&shared), 2, Some(Duration::from_micros(10)));
    recorder.now = 1_000;
    let (read, flush) = (Key::new(900, 1, Path::DirectRead), Key::new(10, 2, Path::Flush));
    recorder.issued(read, 3, 2, 8192);
    recorder.issued(flush, 0, 1, 0);
    recorder.ended(read, 2);
    recorder.ended(Key::NONE, 7);
    recorder.ended(read, 0);
    // A segment that there is not is counted nowhere.
    recorder.issued(Key::new(900, 3, Path::DirectRead), 1, 1, 1);
    let found: Vec<_> = shared.cells.read().collect();
    let counts: Vec<_> = found
        .iter()
        .map(|(at, path, flow)| (*at, *path, flow.requests, flow.commands, flow.bytes, flow.latency.count()))
        .collect();
    assert_eq!(counts, [(1, Path::DirectRead, 3, 2, 8192, 2), (2, Path::Flush, 0, 1, 0, 0)]);
    assert_eq!(found[0].2.latency.longest(), Some(Duration::from_nanos(1600)));
    assert!(!recorder.is_slow(read) && recorder.is_slow(flush) && !recorder.is_slow(Key::NONE));
    assert_eq!(recorder.before_issue(read, 650), Some(Duration::from_nanos(250 * 16)));
    assert_eq!(recorder.before_issue(read, 901), None, "it was taken in later");
    for in_flight in [4, 9, 2] {
        recorder.occupied(in_flight);
    }
    assert_eq!(shared.occupancy(), Occupancy { turns: 3, sum: 15, most: 9 });
    assert!((shared.occupancy().mean() - 5.0).abs() < 1e-9);
}
