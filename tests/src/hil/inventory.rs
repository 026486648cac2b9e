//! The inventory: which drives of a machine are for tests, as a TOML file says.
//!
//! ```toml
//! # By what they are opened; without it, by what the machine has.
//! way = "type1"
//!
//! [[controller]]
//! address = "0000:04:00.0"
//! serial = "S64FNE0R512345"
//! ```

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;
use tentpeg_driver::bus::PciAddress;
use tentpeg_driver::vfio::Way;
use thiserror::Error;

/// The drives that tests may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// By what they are opened; none: by what the machine has.
    pub way: Option<Way>,
    /// At least one, each once.
    pub controllers: Vec<Entry>,
}

/// A drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub address: PciAddress,
    /// Its serial number, so that a drive that has moved is not taken for another.
    pub serial: String,
}

/// What is wrong with an inventory. The caller is at fault.
#[derive(Debug, Error)]
pub enum InventoryError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It is not TOML, or has other keys.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where, and what.
        source: Box<toml::de::Error>,
    },
    /// A value says nothing.
    #[error("{}: {key} = {value:?}: {right}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Which.
        key: &'static str,
        /// What it says.
        value: String,
        /// What would be right.
        right: String,
    },
    /// No controller, or one twice.
    #[error("{}: {wrong}: name each controller once by [[controller]], with its address and its serial number", path.display())]
    Controllers {
        /// The file.
        path: PathBuf,
        /// Which of the two.
        wrong: String,
    },
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    way: Option<String>,
    #[serde(default)]
    controller: Vec<WrittenEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEntry {
    address: String,
    serial: String,
}

impl Inventory {
    /// Reads a file.
    ///
    /// # Errors
    /// [`InventoryError`].
    pub fn read(path: &Path) -> Result<Self, InventoryError> {
        let text = fs::read_to_string(path).map_err(|source| InventoryError::Read { path: path.to_owned(), source })?;
        Self::of_text(path, &text)
    }

    fn of_text(path: &Path, text: &str) -> Result<Self, InventoryError> {
        let path = || path.to_owned();
        let written: Written =
            toml::from_str(text).map_err(|source| InventoryError::Syntax { path: path(), source: Box::new(source) })?;
        let value = |key, value: String, right: &str| InventoryError::Value {
            path: path(),
            key,
            value,
            right: right.to_owned(),
        };
        let way = match written.way {
            Some(word) => {
                let known = Way::of_word(&word);
                Some(known.ok_or_else(|| value("way", word, "write type1 or iommufd, or leave it away"))?)
            }
            None => None,
        };
        let mut controllers: Vec<Entry> = Vec::new();
        for WrittenEntry { address: word, serial } in written.controller {
            let address: PciAddress = match word.parse() {
                Ok(address) => address,
                Err(error) => return Err(value("address", word, &format!("{error}"))),
            };
            if serial.trim().is_empty() {
                return Err(value("serial", serial, "write what `tentpeg info` shows of the controller"));
            }
            if controllers.iter().any(|other| other.address == address) {
                return Err(InventoryError::Controllers { path: path(), wrong: format!("{address} is named twice") });
            }
            controllers.push(Entry { address, serial: serial.trim().to_owned() });
        }
        if controllers.is_empty() {
            return Err(InventoryError::Controllers { path: path(), wrong: "no controller is named".to_owned() });
        }
        Ok(Self { way, controllers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Inventory, String> {
        Inventory::of_text(Path::new("drives.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn an_inventory_is_read() {
        let text = "way = \"iommufd\"\n[[controller]]\naddress = \"0000:04:00.0\"\nserial = \" S1 \"\n\
                    [[controller]]\naddress = \"05:00.0\"\nserial = \"S2\"\n";
        let entry =
            |address: &str, serial: &str| Entry { address: address.parse().unwrap(), serial: serial.to_owned() };
        let controllers = vec![entry("0000:04:00.0", "S1"), entry("0000:05:00.0", "S2")];
        assert_eq!(read(text), Ok(Inventory { way: Some(Way::Iommufd), controllers }));
    }

    #[test]
    fn what_is_wrong_with_one_is_said() {
        let one = "[[controller]]\naddress = \"04:00.0\"\nserial = \"S\"\n";
        for (text, said) in [
            (String::new(), "no controller is named"),
            (format!("{one}{one}"), "0000:04:00.0 is named twice"),
            (format!("way = \"uio\"\n{one}"), "write type1 or iommufd"),
            (one.replace("\"S\"", "\" \""), "what `tentpeg info` shows"),
            (one.replace("04:00.0", "4"), "address = \"4\""),
            (one.replace("serial", "serail"), "serail"),
            ("[[controller]]\naddress = \"04:00.0\"\n".to_owned(), "missing field `serial`"),
            ("way = ".to_owned(), "line 1"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.starts_with("drives.toml: ") && error.contains(said), "{text}: {error}");
        }
        let error = Inventory::read(Path::new("/nowhere/drives.toml")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/drives.toml: "), "{error}");
    }
}
