//! See `tentpeg_tests::fuzz::prp_sgl`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tentpeg_tests::fuzz::prp_sgl(data);
});
