//! See `tentpeg_tests::fuzz::label`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tentpeg_tests::fuzz::label(data);
});
