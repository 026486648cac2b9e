//! The bodies of the fuzz targets (`tests/fuzz`), and what they share.
//!
//! A body takes any bytes and panics where the code under test breaks a promise. They live here and not beside the
//! fuzzer, so that the stable toolchain builds, lints and tests them, and so that `cargo test` runs each once over the
//! corpus that is committed: a find that was fixed stays fixed.
//!
//! In every one an [`Input`] that has come to its end gives zeroes, and zero is the well-behaved answer. So the empty
//! input is a run without surprises, and a fuzzer spends its bytes on surprises.

mod device;
mod input;
mod label;
mod lists;
mod mappings;
mod model_commands;
mod reached;
mod script;
mod uri_trace;

pub use input::Input;
pub use label::label;
pub use lists::prp_sgl;
pub use model_commands::model_commands;
pub use reached::Reached;
pub use script::device;
pub use uri_trace::uri_trace;

/// A target's body. It says how far the input got, so that a corpus which gets nowhere is found out.
pub type Body = fn(&[u8]) -> Reached;

/// The targets, by name.
pub const TARGETS: &[(&str, Body)] = &[
    ("device", device),
    ("label", label),
    ("prp_sgl", prp_sgl),
    ("model_commands", model_commands),
    ("uri_trace", uri_trace),
];
