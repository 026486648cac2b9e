//! What the operator's command `tentpeg` is made of: the logic of each subcommand and what they share. Nothing here ends the process or
//! prints a result; the binary does.
//!
//! A subcommand opens a device, moves bytes, and gives a [`Report`](report::Report), which is shown as a table or as JSON. Counts of
//! the two sides of a device are compared in [`both_sides`]; Ctrl-C is an [`Interrupt`](interrupt::Interrupt) that loops look at.

pub mod bench;
pub mod bind;
pub mod both_sides;
pub mod copy;
pub mod device;
pub mod doctor;
pub mod failure;
mod gpu;
pub mod hil;
pub mod info;
pub mod interrupt;
pub mod label;
pub mod lanes;
pub mod list;
#[cfg(test)]
mod machine;
pub mod memory_budget;
pub mod memory_place;
pub mod options;
pub mod progress;
pub mod replay;
pub mod report;
pub mod resident;
pub mod rotation;
pub mod segment;
pub mod units;
