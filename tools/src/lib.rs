//! What the operator's command `tentpeg` is made of, apart from its command line: the logic of each subcommand, sizes as users write
//! them, and the memory that a run may take. Nothing here prints or ends the process; the binary does.

pub mod memory_budget;
pub mod replay;
pub mod units;
