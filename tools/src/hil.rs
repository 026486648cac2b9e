//! `tentpeg hil`: hardware in the loop, which is a program of its own beside this one: it brings tests, a guest's programs
//! and their libraries along, and a storage node has no use for them.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

/// The program.
const PROGRAM: &str = "tentpeg-hil";

/// What is passed on.
#[derive(Args, Clone, Debug)]
pub struct HilArgs {
    /// What it is to do: `tentpeg hil help` says what it can
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}

/// Becomes the program. Returns only where there is none, with what to say.
pub fn run(args: &HilArgs) -> String {
    let program = beside(PROGRAM).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(&args.arguments).exec();
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => {
            ": install it beside tentpeg; in a source tree `cargo build --release --workspace --bins` builds both"
        }
        _ => "",
    };
    format!("{}: {error}{remedy}", program.display())
}

/// A program in the folder of this one, where there is such.
pub fn beside(name: &str) -> Option<PathBuf> {
    let path = env::current_exe().ok()?.parent()?.join(name);
    path.exists().then_some(path)
}
