//! Controllers that are not of this process: functions of this machine, and functions behind a socket.
//!
//! What is in a drive is not in our hands as a model's file is, so a drive is written only where the URI says
//! `overwrite`, as a file that exists.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tentpeg_driver::bus::PciAddress;
use tentpeg_driver::vfio::Way;

use super::{UriError, escaped, split_at_commas};

/// The settings of a `pci:` URI: `pci:0000:04:00.0,overwrite`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciUri {
    /// A function that `vfio-pci` has.
    pub address: PciAddress,
    /// By what it is opened; without, what the machine has is taken.
    pub way: Option<Way>,
    /// Whether it may be written.
    pub overwrite: bool,
}

/// The settings of a `vfio-user:` URI: `vfio-user:/run/nvme.socket,overwrite`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VfioUserUri {
    /// The server's socket.
    pub socket: PathBuf,
    /// Whether its namespace may be written.
    pub overwrite: bool,
}

impl FromStr for PciUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, settings) = parts(text)?;
        let address = address.parse().map_err(UriError::Address)?;
        let mut uri = Self { address, way: None, overwrite: false };
        for setting in settings {
            match setting.split_once('=') {
                None if setting == "overwrite" => uri.overwrite = true,
                Some(("way", value)) => {
                    let wrong = || "write type1 or iommufd, or leave it away".to_owned();
                    let no_way = || UriError::Value { name: "way", value: value.to_owned(), wrong: wrong() };
                    uri.way = Some(Way::of_word(value).ok_or_else(no_way)?);
                }
                _ => return Err(unknown("a PCI function", &setting, "overwrite and way=type1 or way=iommufd")),
            }
        }
        Ok(uri)
    }
}

impl FromStr for VfioUserUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (socket, settings) = parts(text)?;
        if socket.is_empty() {
            return Err(UriError::Together("vfio-user: needs a socket: write vfio-user:/run/nvme.socket"));
        }
        let mut uri = Self { socket: PathBuf::from(socket), overwrite: false };
        for setting in settings {
            match setting.as_str() {
                "overwrite" => uri.overwrite = true,
                _ => return Err(unknown("a socket", &setting, "overwrite; a comma within a path is written \\,")),
            }
        }
        Ok(uri)
    }
}

/// What comes first, and the settings behind it, each once.
fn parts(text: &str) -> Result<(String, Vec<String>), UriError> {
    let mut parts = split_at_commas(text).into_iter();
    let first = parts.next().unwrap_or_default();
    let settings: Vec<_> = parts.collect();
    let name = |setting: &String| setting.split_once('=').map_or(setting.clone(), |(name, _)| name.to_owned());
    for (index, setting) in settings.iter().enumerate() {
        if setting.is_empty() {
            return Err(UriError::Comma);
        }
        if settings[..index].iter().any(|other| name(other) == name(setting)) {
            return Err(UriError::Twice(name(setting)));
        }
    }
    Ok((first, settings))
}

fn unknown(of: &'static str, setting: &str, has: &'static str) -> UriError {
    UriError::NotOf { of, setting: setting.to_owned(), has }
}

impl fmt::Display for PciUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if let Some(way) = self.way {
            write!(f, ",way={}", way.word())?;
        }
        f.write_str(if self.overwrite { ",overwrite" } else { "" })
    }
}

impl fmt::Display for VfioUserUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", escaped(&self.socket), if self.overwrite { ",overwrite" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::DeviceUri;
    use super::*;

    fn message(text: &str) -> String {
        text.parse::<DeviceUri>().unwrap_err().to_string()
    }

    #[test]
    fn what_a_function_is_called() {
        let address = "0000:04:00.0".parse().unwrap();
        for (text, way, overwrite) in [
            ("pci:04:00.0", None, false),
            ("pci:0000:04:00.0,overwrite", None, true),
            ("pci:0000:04:00.0,way=type1", Some(Way::Type1), false),
            ("pci:0000:04:00.0,overwrite,way=iommufd", Some(Way::Iommufd), true),
        ] {
            assert_eq!(text.parse(), Ok(DeviceUri::Pci(PciUri { address, way, overwrite })));
        }
        for (text, socket, overwrite) in
            [("vfio-user:/run/a\\,b", "/run/a,b", false), ("vfio-user:socket,overwrite", "socket", true)]
        {
            let expected = VfioUserUri { socket: socket.into(), overwrite };
            assert_eq!(text.parse(), Ok(DeviceUri::VfioUser(expected)));
        }
    }

    #[test]
    fn each_mistake_is_named() {
        assert!(message("pci:").contains("'' is no PCI address: write domain:bus:device.function"));
        assert!(message("pci:nvme0").contains("'nvme0' is no PCI address"));
        assert!(message("pci:04:00.0,way=uio").contains("way=uio: write type1 or iommufd"));
        assert!(
            message("pci:04:00.0,way").contains("a PCI function has no setting 'way': it has overwrite and way=type1")
        );
        assert!(message("pci:04:00.0,overwrite=yes").contains("no setting 'overwrite=yes'"));
        assert!(message("pci:04:00.0,overwrite,overwrite").contains("'overwrite' stands twice"));
        assert!(message("pci:04:00.0,way=type1,way=iommufd").contains("'way' stands twice"));
        assert!(message("pci:04:00.0,").contains("a comma too many"));
        assert!(message("vfio-user:").contains("write vfio-user:/run/nvme.socket"));
        assert!(message("vfio-user:a,b").contains(r"a comma within a path is written \,"));
        for text in ["pci:\u{7}", "pci:04:00.0,\u{7}", "pci:04:00.0,way=\u{7}", "vfio-user:a,\u{7}"] {
            assert!(!message(text).contains(char::is_control), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_is_read_is_written(text in "(pci:0000:04:00\\.[0-7]|vfio-user:)[a-z0-9=,\\\\/]{0,30}") {
            if let Ok(uri) = text.parse::<DeviceUri>() {
                prop_assert_eq!(uri.to_string().parse(), Ok(uri));
            }
        }
    }
}
