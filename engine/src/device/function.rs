//! Functions of this machine and functions behind sockets, as devices.
//!
//! Those of this machine that an engine owns are opened together, into one address space ([`Reach`]); one behind a
//! socket has the address space of its connection, and is alone.

use std::sync::Arc;

use tentpeg_driver::bus::{PciAddress, Sysfs};
use tentpeg_driver::controller::quirks::PciId;
use tentpeg_driver::vfio::{self, VfioDevice, VfioFunction, Way};
use tentpeg_driver::vfio_user::{ClientConfig, VfioUserFunction};

use super::{Found, OpenError};
use crate::uri::{DeviceUri, PciUri, VfioUserUri};

/// Functions that are open and not yet anybody's device.
#[derive(Default)]
pub(super) struct Reach(Vec<VfioDevice>);

impl Reach {
    /// Opens all of `uris` together.
    pub(super) fn open(&mut self, uris: &[PciUri]) -> Result<(), OpenError> {
        let Some(first) = uris.first() else { return Ok(()) };
        let way = common_way(uris)?;
        let addresses: Vec<PciAddress> = uris.iter().map(|uri| uri.address).collect();
        let name = || DeviceUri::Pci(*first).to_string();
        let sysfs = Sysfs::system();
        let opened = vfio::open(&sysfs, &addresses, way);
        self.0 = opened.map_err(|source| OpenError::Vfio { device: name(), source })?;
        Ok(())
    }

    /// The function that `uri` names: one that was opened with others, or it alone.
    pub(super) fn find(&mut self, uri: PciUri) -> Result<Found, OpenError> {
        let name = DeviceUri::Pci(uri).to_string();
        let failed = |source| OpenError::Vfio { device: name.clone(), source };
        let position = self.0.iter().position(|device| device.function().address == uri.address);
        if position.is_none() {
            self.open(&[uri])?;
        }
        let device = self.0.swap_remove(position.unwrap_or(0));
        let function = device.function();
        let pci = function.vendor.zip(function.device).map(|(vendor, device)| PciId { vendor, device });
        let function = Arc::new(VfioFunction::new(Arc::new(device)).map_err(failed)?);
        Ok(Found { pci, ..Found::of_function(name, function, uri.overwrite) })
    }
}

/// The way that all ask for, where one asks for any.
fn common_way(uris: &[PciUri]) -> Result<Option<Way>, OpenError> {
    let mut ways = uris.iter().filter_map(|uri| uri.way.map(|way| (way, uri)));
    let Some((way, first)) = ways.next() else { return Ok(None) };
    match ways.find(|(other, _)| *other != way) {
        Some((_, second)) => Err(OpenError::Ways {
            first: DeviceUri::Pci(*first).to_string(),
            second: DeviceUri::Pci(*second).to_string(),
        }),
        None => Ok(Some(way)),
    }
}

/// The function behind a socket.
pub(super) fn find_behind_socket(uri: &VfioUserUri) -> Result<Found, OpenError> {
    let name = DeviceUri::VfioUser(uri.clone()).to_string();
    let function = VfioUserFunction::connect(&uri.socket, &ClientConfig::default())
        .map_err(|source| OpenError::VfioUser { device: name.clone(), source })?;
    Ok(Found::of_function(name, function, uri.overwrite))
}

#[cfg(test)]
mod tests {
    use crate::{Engine, EngineConfig, OpenOptions};

    fn refused(uris: &[&str]) -> String {
        let opened = Engine::open_devices(uris.iter().copied(), OpenOptions::default());
        opened.err().expect("nothing of the kind is here").to_string()
    }

    #[test]
    fn what_is_not_there_is_named() {
        // No machine has a domain of this number.
        let text = refused(&["pci:fffffffe:00:00.0"]);
        assert!(text.starts_with("pci:fffffffe:00:00.0: "), "{text}");
        let error = Engine::open("vfio-user:/nowhere/socket", EngineConfig::default()).err().unwrap();
        assert!(error.to_string().contains("/nowhere/socket"), "{error}");
    }

    #[test]
    fn one_way_is_for_all() {
        let text = refused(&["pci:fffffffe:00:00.0,way=type1", "pci:fffffffe:00:01.0,way=iommufd"]);
        assert!(text.contains("write the same way="), "{text}");
    }
}
