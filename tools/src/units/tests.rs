use proptest::prelude::*;

use super::*;

#[test]
fn times_as_users_write_them() {
    for (text, milliseconds) in
        [("0s", 0), ("500ms", 500), ("10s", 10_000), ("2min", 120_000), ("10000min", 600_000_000)]
    {
        assert_eq!(text.parse(), Ok(Time(Duration::from_millis(milliseconds))), "{text}");
    }
    for text in
        ["", "5", "s", "-1s", "1.5s", "5 s", "5h", "5S", "10001min", "18446744073709551615min", "99999999999999999999s"]
    {
        let message = text.parse::<Time>().unwrap_err().to_string();
        assert!(message.starts_with(&format!("'{text}' is no time: ")), "{message}");
    }
}

#[test]
fn numbers_for_readers() {
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (10_229, "9.99 KiB"),
        (10_236, "10.0 KiB"),
        ((1 << 20) - 513, "1023 KiB"),
        ((1 << 20) - 512, "1.00 MiB"),
        ((1 << 20) - 1, "1.00 MiB"),
        (3_554_000_000, "3.31 GiB"),
        ((1 << 40) - 1, "1.00 TiB"),
        (u64::MAX, "16777216 TiB"),
    ] {
        assert_eq!(About(bytes).to_string(), text);
    }
    for (count, text) in [
        (0, "0"),
        (999, "999"),
        (1_000, "1,000"),
        (76_613, "76,613"),
        (211_887_000, "211,887,000"),
        (u64::MAX, "18,446,744,073,709,551,615"),
    ] {
        assert_eq!(Count(count).to_string(), text);
    }
    for (nanoseconds, text) in [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (12_449, "12.4 µs"),
        (99_949, "99.9 µs"),
        (99_950, "100 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (999_499_999, "999 ms"),
        (999_500_000, "1.00 s"),
        (75_000_000_000, "75.0 s"),
        (4_000_000_000_000, "4000 s"),
    ] {
        assert_eq!(Elapsed(Duration::from_nanos(nanoseconds)).to_string(), text);
    }
    let rate = Rate::of(24_800_000_000, Duration::from_secs(2)).unwrap();
    assert_eq!((rate.to_string().as_str(), rate.gb_per_s()), ("12.4 GB/s", 12.4));
    assert_eq!(Rate::of(5_000_000, Duration::from_secs(1)).unwrap().to_string(), "0.005 GB/s");
    assert_eq!(Rate::of(5, Duration::ZERO), None);
    assert_eq!(format!("[{:<7}][{:>9}]", Count(1234), Elapsed(Duration::from_nanos(5))), "[1,234  ][     5 ns]");
}

proptest! {
    #[test]
    fn separators_are_all_that_a_count_adds(count in any::<u64>()) {
        prop_assert_eq!(Count(count).to_string().replace(',', ""), count.to_string());
    }

    #[test]
    fn what_is_shown_is_near(number in any::<u64>(), shift in 0u32..64) {
        let number = number >> shift;
        let near = |text: String, units: &[(&str, f64)]| {
            let (value, unit) = text.split_once(' ').unwrap();
            let scale = units.iter().find(|(name, _)| *name == unit).unwrap().1;
            let shown = value.parse::<f64>().unwrap() * scale;
            (shown - number as f64).abs() <= 0.0051 * number as f64
        };
        let bytes = UNITS.map(|(name, shift)| (name, (1u64 << shift) as f64));
        prop_assert!(near(About(number).to_string(), &bytes), "{} is {}", number, About(number));
        let elapsed = Elapsed(Duration::from_nanos(number)).to_string();
        prop_assert!(near(elapsed.clone(), &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)]), "{} is {}", number, elapsed);
    }
}
