//! A function behind a socket: vfio-user, both ends.
//!
//! vfio-user (version 0.1; the protocol's text is `docs/interop/vfio-user.rst` of QEMU) is the kernel's VFIO interface as
//! messages over a UNIX socket. The *server* is the device, the *client* drives it: it reads and writes the device's
//! regions by messages, and shares the memory that the device may reach by passing file descriptors.
//!
//! - [`VfioUserFunction`] is the client: a [`Function`](crate::bus::Function) with an address space of its own.
//! - [`Server`] serves any function over a socket, whose DMA goes through any
//!   [`AddressSpace`](crate::dma::AddressSpace): in tests, the model in a process of its own.
//!
//! Below both: `wire` is the messages as plain data, `version` what is said of both ends' limits, `socket` moves
//! whole messages with deadlines, `mapping` maps what the other side's descriptors lead to. Neither end trusts the
//! other: a length is checked before it is used, and what cannot be a message ends the connection.
//!
//! Both ends share these, so a mistake in them could cancel out; the tests set each end against the crate `vfio_user`
//! as well.
//!
//! It is a way for tests and for controllers in software, not for speed: a doorbell is a message, unless the server lets
//! its page be mapped.

mod client;
mod error;
mod mapping;
mod server;
mod socket;
mod version;
mod wire;

pub use client::{ClientConfig, SilentServer, VfioUserFunction};
pub use error::{ProtocolError, VfioUserError};
pub use server::{PciIdentity, Server, ServerConfig};
