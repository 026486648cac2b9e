//! See `tentpeg_tests::fuzz::uri_trace`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tentpeg_tests::fuzz::uri_trace(data);
});
