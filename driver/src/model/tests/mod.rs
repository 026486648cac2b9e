//! The model as a driver meets it: registers, rings by hand, raw commands. Independent of the driver's own queues.

mod host;
mod io;
mod life;
