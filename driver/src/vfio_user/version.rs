//! What the two ends say of their limits when they meet (VFIO_USER_VERSION).
//!
//! The capabilities are a JSON text. What is missing has a default; what is not known is left alone, as the protocol
//! wants it.

use std::collections::HashMap;

use tinyjson::JsonValue;
use zerocopy::IntoBytes;

use super::error::ProtocolError;
use super::wire::{self, Header, MAX_DATA, MAX_DESCRIPTORS};

/// Page of a mapping where the other end does not say one.
const DEFAULT_PAGE: u64 = 4096;

/// The longest text of capabilities that is read.
const LONGEST_TEXT: usize = 1024;
/// And how deep what is in it may nest: it is read by recursion, on whatever stack the caller has.
const DEEPEST: usize = 16;

/// How deep a JSON text nests, or more where strings have brackets.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// One end's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// File descriptors that it takes with one message.
    pub(super) max_msg_fds: u64,
    /// Bytes of a region that one message may carry.
    pub(super) max_data_xfer_size: u64,
    /// Mappings that there can be at a time.
    pub(super) max_dma_maps: u64,
    /// Page sizes of mappings, or'ed together.
    pub(super) pgsizes: u64,
}

impl Default for Capabilities {
    /// What holds of an end that says nothing.
    fn default() -> Self {
        Self { max_msg_fds: 1, max_data_xfer_size: 1 << 20, max_dma_maps: 65535, pgsizes: DEFAULT_PAGE }
    }
}

impl Capabilities {
    /// Ours, as either end.
    pub(super) fn ours(max_dma_maps: u64) -> Self {
        Self {
            max_msg_fds: MAX_DESCRIPTORS as u64,
            max_data_xfer_size: MAX_DATA as u64,
            max_dma_maps,
            pgsizes: DEFAULT_PAGE,
        }
    }

    /// The smallest page of a mapping.
    pub(super) fn page_size(&self) -> u64 {
        1 << self.pgsizes.trailing_zeros()
    }
}

/// A version message's payload, as one end sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) version: wire::Version,
    pub(super) capabilities: Capabilities,
    /// The names that were said; a reply may name no others.
    said: Vec<String>,
}

/// The names of [`Capabilities`], in order.
const NAMES: [&str; 4] = ["max_msg_fds", "max_data_xfer_size", "max_dma_maps", "pgsizes"];

impl Offer {
    /// What a client proposes.
    pub(super) fn proposal(capabilities: Capabilities) -> Self {
        let (major, minor) = wire::VERSION;
        let said = NAMES.iter().map(|name| (*name).to_owned()).collect();
        Self { version: wire::Version { major, minor }, capabilities, said }
    }

    /// What a server answers to this proposal: the same major version, the smaller minor one, and of its own
    /// capabilities those that the client has named.
    pub(super) fn answer(&self, capabilities: Capabilities) -> Result<Self, ProtocolError> {
        let wire::Version { major, minor } = self.version;
        if major != wire::VERSION.0 {
            return Err(ProtocolError::Version { major, minor });
        }
        let version = wire::Version { major, minor: minor.min(wire::VERSION.1) };
        Ok(Self { version, capabilities, said: self.said.clone() })
    }

    /// Whether a client that has proposed our version can go on with this answer.
    pub(super) fn check_answer(&self) -> Result<(), ProtocolError> {
        let wire::Version { major, minor } = self.version;
        if major == wire::VERSION.0 && minor <= wire::VERSION.1 {
            return Ok(());
        }
        Err(ProtocolError::Version { major, minor })
    }

    /// The payload of the message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let Capabilities { max_msg_fds, max_data_xfer_size, max_dma_maps, pgsizes } = self.capabilities;
        let values = [max_msg_fds, max_data_xfer_size, max_dma_maps, pgsizes];
        let named = NAMES.iter().zip(values).filter(|(name, _)| self.said.iter().any(|said| said == *name));
        let list: Vec<_> = named.map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let mut payload = self.version.as_bytes().to_vec();
        payload.extend(format!("{{\"capabilities\":{{{}}}}}", list.join(",")).into_bytes());
        payload.push(0);
        payload
    }

    /// What the other end's message says.
    pub(super) fn decode(header: &Header, payload: &[u8]) -> Result<Self, ProtocolError> {
        let (version, text) = header.payload::<wire::Version>(payload)?;
        // The zero at the end is there by the protocol; who forgets it is understood as well.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let unusable = |reason: String| ProtocolError::Capabilities { reason };
        if text.len() > LONGEST_TEXT {
            return Err(unusable(format!("{} bytes of them; {LONGEST_TEXT} at the most would be right", text.len())));
        }
        let text = str::from_utf8(text).map_err(|error| unusable(error.to_string()))?;
        if depth(text) > DEEPEST {
            return Err(unusable(format!("they nest deeper than {DEEPEST}, which would be right")));
        }
        let mut list = HashMap::new();
        if !text.is_empty() {
            let all: JsonValue = text.parse().map_err(|error: tinyjson::JsonParseError| unusable(error.to_string()))?;
            match all {
                JsonValue::Object(mut all) => match all.remove("capabilities") {
                    None | Some(JsonValue::Null) => {}
                    Some(JsonValue::Object(found)) => list = found,
                    Some(other) => return Err(unusable(format!("{other:?} is no list of them"))),
                },
                other => return Err(unusable(format!("{other:?} is no JSON object"))),
            }
        }
        let mut capabilities = Capabilities::default();
        let fields = [
            &mut capabilities.max_msg_fds,
            &mut capabilities.max_data_xfer_size,
            &mut capabilities.max_dma_maps,
            &mut capabilities.pgsizes,
        ];
        for (name, field) in NAMES.iter().zip(fields) {
            if let Some(value) = list.get(*name) {
                let number = value.get::<f64>().filter(|number| **number >= 1.0 && **number <= i64::MAX as f64);
                let wrong = || unusable(format!("{name} is {value:?}; a number above 0 would be right"));
                *field = *number.ok_or_else(wrong)? as u64;
            }
        }
        Ok(Self { version, capabilities, said: list.keys().cloned().collect() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(payload: &[u8]) -> Result<Offer, ProtocolError> {
        Offer::decode(&Header::command(1, wire::command::VERSION, payload.len()), payload)
    }

    fn text(json: &str) -> Vec<u8> {
        [&[0, 0, 1, 0], json.as_bytes(), &[0]].concat()
    }

    #[test]
    fn what_is_sent_is_understood() {
        let offer = Offer::proposal(Capabilities::ours(77));
        let mut found = decoded(&offer.encode()).unwrap();
        found.said.sort_by_key(|name| NAMES.iter().position(|known| known == name));
        assert_eq!(found, offer);
    }

    #[test]
    fn an_end_that_says_nothing_has_the_defaults() {
        for json in ["", "{}", "{\"capabilities\":{}}", "{\"capabilities\":null}", "{\"other\":[1]}"] {
            assert_eq!(decoded(&text(json)).unwrap().capabilities, Capabilities::default(), "{json}");
        }
        assert_eq!(decoded(&[0, 0, 1, 0]).unwrap().capabilities, Capabilities::default());
        assert_eq!(Capabilities::default().page_size(), 4096);
    }

    #[test]
    fn an_answer_names_only_what_was_proposed() {
        let proposal =
            decoded(&text("{\"capabilities\":{\"max_msg_fds\":3,\"migration\":{\"pgsize\":4096}}}")).unwrap();
        let answer = proposal.answer(Capabilities::ours(10)).unwrap();
        let payload = answer.encode();
        assert_eq!(&payload[4..payload.len() - 1], b"{\"capabilities\":{\"max_msg_fds\":8}}");
    }

    #[test]
    fn the_smaller_minor_version_is_spoken() {
        let propose = |major, minor| Offer {
            version: wire::Version { major, minor },
            ..Offer::proposal(Capabilities::default())
        };
        let answer =
            |major, minor| propose(major, minor).answer(Capabilities::default()).map(|offer| offer.version.minor);
        assert_eq!(answer(0, 0), Ok(0));
        assert_eq!(answer(0, 1), Ok(1));
        assert_eq!(answer(0, 7), Ok(1));
        assert_eq!(answer(1, 0), Err(ProtocolError::Version { major: 1, minor: 0 }));
        assert!(propose(0, 0).check_answer().is_ok());
        assert_eq!(propose(0, 2).check_answer(), Err(ProtocolError::Version { major: 0, minor: 2 }));
    }

    #[test]
    fn unusable_capabilities_are_refused() {
        for json in [
            "{",
            "[[[[",
            "7",
            "{\"capabilities\":7}",
            "{\"capabilities\":{\"max_msg_fds\":-1}}",
            "{\"capabilities\":{\"max_msg_fds\":0}}",
            "{\"capabilities\":{\"pgsizes\":\"4096\"}}",
            "{\"capabilities\":{\"max_dma_maps\":1e99}}",
        ] {
            let found = decoded(&text(json));
            assert!(matches!(found, Err(ProtocolError::Capabilities { .. })), "{json}: {found:?}");
        }
        for deep in ["[".repeat(1020), "{\"a\":".repeat(200)] {
            let found = decoded(&text(&deep));
            let Err(ProtocolError::Capabilities { reason }) = found else { panic!("{found:?}") };
            assert!(reason.contains("nest deeper than 16"), "{reason}");
        }
        assert_eq!(decoded(&[0, 0, 1]), Err(ProtocolError::Payload { command: 1, len: 3, least: 4 }));
    }

    proptest! {
        /// Whatever comes is read, or refused with a reason.
        #[test]
        fn nothing_that_comes_is_a_panic(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(offer) = decoded(&payload) {
                prop_assert!(offer.capabilities.page_size().is_power_of_two());
            }
        }
    }
}
