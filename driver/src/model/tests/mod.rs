//! The model as a driver meets it: registers, rings by hand, raw commands. Independent of the driver's own queues.

mod abort;
mod admin;
mod answers;
mod bus;
mod events;
mod faults;
mod features;
mod file;
mod firmware;
mod host;
mod io;
mod life;
mod log_pages;
mod namespaces;
mod operations;
mod queue_commands;
mod rings;
mod threaded;
