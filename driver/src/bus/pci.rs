//! Where a function sits on the PCI bus.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The address of a PCI function: domain, bus, device and function, written `0000:04:00.0` as Linux does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// A text that is no PCI address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{}' is no PCI address: write domain:bus:device.function in hexadecimal, such as 0000:04:00.0", .0.escape_debug())]
pub struct PciAddressError(pub String);

impl FromStr for PciAddress {
    type Err = PciAddressError;

    /// Reads `0000:04:00.0`, or `04:00.0`, which is in domain 0.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = || {
            let (rest, function) = text.split_once('.')?;
            let mut fields = rest.rsplit(':');
            let (device, bus) = (hex(fields.next()?, 2)?, hex(fields.next()?, 2)?);
            let domain = fields.next().map_or(Some(0), |domain| hex(domain, 8))?;
            let function = hex(function, 1)?;
            // Five bits of device, three of function (PCI Express Base 6.0, 2.2.6.2).
            let fits = fields.next().is_none() && device < 32 && function < 8;
            fits.then_some(Self { domain, bus: bus as u8, device: device as u8, function: function as u8 })
        };
        parts().ok_or_else(|| PciAddressError(text.to_owned()))
    }
}

/// A number of 1 to `most` hexadecimal digits and nothing else.
pub(super) fn hex(text: &str, most: usize) -> Option<u32> {
    let digits = !text.is_empty() && text.len() <= most && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits { u32::from_str_radix(text, 16).ok() } else { None }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_read_in_both_forms_and_nothing_else() {
        let address: PciAddress = "04:1f.7".parse().unwrap();
        assert_eq!(address.to_string(), "0000:04:1f.7");
        assert_eq!("10000:E1:00.0".parse::<PciAddress>().unwrap().to_string(), "10000:e1:00.0");
        for text in ["", "04:00", "4:0:0:0.0", "04:20.0", "04:00.8", "04:00.-1", "+4:00.0", "04:00.0 ", "é4:00.0", "."]
        {
            assert_eq!(text.parse::<PciAddress>(), Err(PciAddressError(text.to_owned())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<PciAddress>();
        }
    }
}
