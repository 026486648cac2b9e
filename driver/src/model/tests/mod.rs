//! The model as a driver meets it: registers, rings by hand, raw commands. Independent of the driver's own queues.

mod admin;
mod bus;
mod faults;
mod file;
mod host;
mod io;
mod life;
mod queue_commands;
mod rings;
mod threaded;
