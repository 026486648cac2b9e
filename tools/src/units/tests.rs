use proptest::prelude::*;

use super::*;

#[test]
fn sizes_that_are_right() {
    for (text, bytes) in [
        ("0", 0),
        ("4096", 4096),
        ("512B", 512),
        ("128KiB", 128 << 10),
        ("0007MiB", 7 << 20),
        ("4GiB", 4 << 30),
        ("1TiB", 1 << 40),
        ("18446744073709551615", u64::MAX),
        ("16777215TiB", 16_777_215 << 40),
    ] {
        assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
    }
}

#[test]
fn sizes_that_are_wrong_say_what_is_right() {
    for (text, message) in [
        ("4K", "`4K`: the unit `K` may mean 1,000 or 1,024 bytes: write 4KiB or the number of bytes"),
        ("2M", "`2M`: the unit `M` may mean 1,000,000 or 1,048,576 bytes: write 2MiB or the number of bytes"),
        ("128kb", "`128kb`: the unit `kb` may mean 1,000 or 1,024 bytes: write 128KiB or the number of bytes"),
        (
            "4GB",
            "`4GB`: the unit `GB` may mean 1,000,000,000 or 1,073,741,824 bytes: write 4GiB or the number of bytes",
        ),
        (
            "1t",
            "`1t`: the unit `t` may mean 1,000,000,000,000 or 1,099,511,627,776 bytes: write 1TiB or the number of bytes",
        ),
        ("4gib", "`4gib`: there is no unit `gib`: write B, KiB, MiB, GiB or TiB right behind the number, such as 4GiB"),
        (
            "4 GiB",
            "`4 GiB`: there is no unit ` GiB`: write B, KiB, MiB, GiB or TiB right behind the number, such as 4GiB",
        ),
        ("1PiB", "`1PiB`: there is no unit `PiB`: write B, KiB, MiB, GiB or TiB right behind the number, such as 4GiB"),
        ("", "`` is not a size: write a whole number of bytes or of a unit, such as 4096, 128KiB or 4GiB"),
        ("GiB", "`GiB` is not a size: write a whole number of bytes or of a unit, such as 4096, 128KiB or 4GiB"),
        ("-1", "`-1` is not a size: write a whole number of bytes or of a unit, such as 4096, 128KiB or 4GiB"),
        (
            "1.5GiB",
            "`1.5GiB` is not a whole number: write a smaller unit instead, such as 1536MiB for 1.5 GiB, and no separators",
        ),
        (
            "4,096",
            "`4,096` is not a whole number: write a smaller unit instead, such as 1536MiB for 1.5 GiB, and no separators",
        ),
        ("18446744073709551616", "`18446744073709551616` is too large: the most is 18446744073709551615 bytes"),
        ("16777216TiB", "`16777216TiB` is too large: the most is 18446744073709551615 bytes"),
    ] {
        assert_eq!(text.parse::<Size>().unwrap_err().to_string(), message);
    }
}

#[test]
fn sizes_are_shown_in_the_largest_unit_that_fits() {
    for (bytes, text) in
        [(0, "0B"), (1000, "1000B"), (1024, "1KiB"), (1536 << 20, "1536MiB"), (4097, "4097B"), (5 << 50, "5120TiB")]
    {
        assert_eq!(Size(bytes).to_string(), text);
    }
    assert_eq!(format!("[{:>8}]", Size(4096)), "[    4KiB]");
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
    fn what_is_shown_parses_to_the_same(significant in any::<u64>(), shift in 0u32..64) {
        for bytes in [significant >> shift, significant << shift] {
            prop_assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
            prop_assert_eq!(bytes.to_string().parse(), Ok(Size(bytes)));
        }
    }

    #[test]
    fn a_unit_multiplies_or_the_size_is_too_large(number in any::<u64>(), shift in 0u32..64, unit in 0usize..5) {
        let number = number >> shift;
        let (name, bits) = UNITS[unit];
        let exact = u128::from(number) << bits;
        match format!("{number}{name}").parse::<Size>() {
            Ok(Size(bytes)) => prop_assert_eq!(u128::from(bytes), exact),
            Err(error) => {
                prop_assert!(matches!(error, SizeError::TooLarge { .. }), "{}", error);
                prop_assert!(exact > u128::from(u64::MAX));
            }
        }
    }

    #[test]
    fn any_text_gives_a_result(text in any::<String>(), number in "[0-9]{1,22}") {
        let _ = text.parse::<Size>();
        let _ = format!("{number}{text}").parse::<Size>();
    }

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
