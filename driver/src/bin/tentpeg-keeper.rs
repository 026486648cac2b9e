//! Holds descriptors for a process of Tentpeg until that has ended. It is started by that process.

use std::process::ExitCode;

fn main() -> ExitCode {
    match tentpeg_driver::keeper::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tentpeg-keeper: {error}: it is started by a process of Tentpeg, and by nobody else");
            ExitCode::FAILURE
        }
    }
}
