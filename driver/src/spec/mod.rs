//! The wire of NVM Express: what a host and a controller exchange, as plain data.
//!
//! Follows the NVM Express Base Specification 2.1, the NVM Command Set Specification 1.1 and the
//! NVMe over PCIe Transport Specification 1.1; each item names its section. A driver and a
//! controller in software read and write the same types, so fields have getters and setters for
//! both. Nothing here does I/O, keeps state or decides: what a value *means* for a queue or a
//! transfer is left to those who use it.
//!
//! Types that lie in memory derive zerocopy's traits and so convert to and from bytes without
//! `unsafe`. Their sizes and offsets are asserted when the crate is compiled. Every bit pattern is
//! a valid value of every such type, because the other side wrote it: enumerations are numbers
//! with named constants, and reserved values stay readable.
//!
//! One file per subject. A command that comes later (reservations, Format NVM, Sanitize) is a file
//! in [`command`], its data structure one beside [`identify`] and [`log`].

#[cfg(target_endian = "big")]
compile_error!("NVMe structures are little-endian and are used in place; big-endian hosts are not supported");

#[macro_use]
mod macros;

pub mod command;
pub mod completion;
pub mod events;
pub mod identify;
pub mod log;
pub mod protection;
pub mod registers;
pub mod reservation;
pub mod sgl;
pub mod status;
mod text;
mod zeroes_based;

pub use zeroes_based::ZeroesBased;
