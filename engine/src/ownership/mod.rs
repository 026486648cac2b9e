//! Whose a device is: three layers that keep everybody else away from it.
//!
//! - [`lock`]: one opener on this node. It lasts as long as the process, whatever ends it.
//! - The label's owner and epoch: one node, over restarts. They are the label's matter; [`node`] says who this node is.
//! - [`reservation`]: one host, held by the controllers themselves, where they have reservations.
//!
//! The lock comes first and the reservation last; only with both is anything written.

pub mod lock;
pub mod node;
pub mod reservation;
mod taken;

pub use taken::{NewOwner, Ownership, TakenOver};
