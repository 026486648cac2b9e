//! The model as a driver meets it: registers, rings by hand, raw commands. Independent of the driver's own queues.

mod admin;
mod bench;
mod bus;
mod commands;
mod faults;
mod file;
mod host;
mod io;
mod life;
mod power;
mod protection;
mod queue_commands;
mod rings;
mod sgl;
mod threaded;
