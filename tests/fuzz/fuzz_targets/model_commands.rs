//! See `tentpeg_tests::fuzz::model_commands`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tentpeg_tests::fuzz::model_commands(data);
});
