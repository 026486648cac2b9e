//! What Identify returns (NVM Express Base 2.1, 5.1.13.2; NVM Command Set 1.1, 4.1.5): structures of
//! 4,096 bytes, laid out as they are on the wire.

mod controller;
mod controller_flags;
mod descriptors;
mod namespace;
mod namespace_list;
mod nvm;

pub use controller::{ControllerType, IdentifyController, PowerStateDescriptor};
pub use controller_flags::{
    Cmic, Ctratt, FlushBehavior, Fna, Fuses, Lpa, Oacs, Oaes, Oncs, SglDataBlock, Sgls, Vwc,
};
pub use descriptors::{
    DescriptorError, DescriptorListFull, DescriptorWriter, Descriptors, NamespaceIdentifier,
};
pub use namespace::{
    Dlfeat, Dps, Flbas, IdentifyNamespace, LbaFormat, Nmic, Nsattr, Nsfeat, Rescap,
};
pub use namespace_list::ActiveNamespaceList;
pub use nvm::{IdentifyControllerNvm, IdentifyNamespaceNvm};

/// The length of every structure that Identify returns, in bytes.
pub const IDENTIFY_LENGTH: usize = 4096;

#[cfg(test)]
mod tests;
