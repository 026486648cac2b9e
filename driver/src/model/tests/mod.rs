//! The model as a driver meets it: registers, rings by hand, raw commands. Independent of the driver's own queues.

mod abort;
mod admin;
mod answers;
mod bench;
mod bus;
mod commands;
mod events;
mod faults;
mod features;
mod file;
mod firmware;
mod host;
mod io;
mod life;
mod log_pages;
mod memory_buffer;
mod namespaces;
mod operations;
mod power;
mod protection;
mod queue_commands;
mod rings;
mod sgl;
mod shadow;
mod subsystem;
mod threaded;
