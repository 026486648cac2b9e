use proptest::prelude::*;

use super::*;

fn of(nanoseconds: &[u64]) -> Distribution {
    let mut latency = Latency::default();
    nanoseconds.iter().for_each(|ns| latency.record(Duration::from_nanos(*ns)));
    latency.distribution().unwrap()
}

#[test]
fn one_request_has_a_distribution_and_none_has_none() {
    assert_eq!(Latency::default().distribution(), None);
    for nanoseconds in [0, 1, 1000, u64::MAX] {
        let one = of(&[nanoseconds]);
        assert_eq!(one.percentiles, [(1.0, Duration::from_nanos(nanoseconds))]);
        assert_eq!((one.ranges.len(), one.ranges[0].count), (1, 1));
        assert!(one.ranges[0].from_ns >= 1.0 && one.ranges[0].to_ns > one.ranges[0].from_ns);
        assert_eq!(one.nines.last(), Some(&(1.0, Duration::from_nanos(nanoseconds))));
    }
}

#[test]
fn a_percentile_needs_a_request_beyond_it() {
    let named = |count: u64| of(&(1..=count).map(|n| n * 1000).collect::<Vec<_>>()).percentiles.len() - 1;
    assert_eq!([1, 2, 3, 4, 9, 10, 99, 100, 999, 1000].map(named), [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_request_is_in_one_range_and_no_curve_goes_down(
        values in prop::collection::vec(prop_oneof![0u64..100, 0u64..10_000_000_000, any::<u64>()], 1..300),
    ) {
        let Distribution { least, summary, percentiles, nines, ranges } = of(&values);
        prop_assert_eq!(ranges.iter().map(|range| range.count).sum::<u64>(), values.len() as u64);
        prop_assert!(ranges.len() <= RANGES as usize);
        prop_assert!(ranges.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
        prop_assert!(ranges.iter().all(|range| range.from_ns.is_finite() && range.to_ns > range.from_ns));
        prop_assert!(nines.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        prop_assert!(percentiles.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        prop_assert!(least <= summary.p50);
        // The curve and the percentiles are looked up in different ways.
        for (part, time) in percentiles {
            let nearest = nines.iter().map(|(nines, on_curve)| ((1.0 - 10f64.powf(-nines) - part).abs(), on_curve));
            let (distance, on_curve) = nearest.min_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
            // Of times longer than are told apart only the longest is exact, and only the curve ends in it.
            let told_apart = time.as_nanos() < u128::from(LONGEST_NS);
            prop_assert!(distance > 1e-12 || !told_apart || *on_curve == time, "{} {:?} {:?}", part, on_curve, time);
        }
        let in_range = |range: &LatencyRange, value: u64| {
            let value = value.clamp(1, LONGEST_NS) as f64;
            // What a bucket of the histogram rounds.
            range.from_ns * 0.999 <= value && value <= range.to_ns * 1.002
        };
        prop_assert!(values.iter().all(|value| ranges.iter().any(|range| in_range(range, *value))));
    }
}
