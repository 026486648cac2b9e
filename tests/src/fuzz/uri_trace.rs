//! What people and files say: device URIs, sizes, traces.

use std::io::BufReader;

use tentpeg_engine::{ByteSize, DeviceUri};
use tentpeg_tools::replay::trace::TraceReader;

use super::Reached;

/// Reads the bytes as a size, a URI and a trace. What is accepted must say the same when it is written and read again;
/// a trace must not depend on how its bytes arrive.
///
/// # Panics
/// When one of that does not hold.
pub fn uri_trace(data: &[u8]) -> Reached {
    let mut reached = Reached::default();
    if let Ok(text) = str::from_utf8(data) {
        if let Ok(size) = text.parse::<ByteSize>() {
            assert_eq!(size.to_string().parse(), Ok(size), "{text:?}");
            reached.note("a size", 1);
        }
        match text.parse::<DeviceUri>() {
            Ok(uri) => {
                assert_eq!(uri.to_string().parse(), Ok(uri), "{text:?}");
                reached.note("a device", 1);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let whole = read(TraceReader::new(data));
    let in_pieces = read(TraceReader::new(BufReader::with_capacity(3, data)));
    assert_eq!(whole, in_pieces);
    reached.note("requests", whole.0.len() as u64);
    reached.note("a whole trace", u64::from(whole.1.is_none()));
    reached
}

/// The requests, and how the trace ends.
fn read<R: std::io::BufRead>(reader: TraceReader<R>) -> (Vec<Vec<u64>>, Option<String>) {
    let mut requests = Vec::new();
    for item in reader {
        match item {
            Ok(request) => requests.push(request.hash_ids),
            Err(error) => return (requests, Some(error.to_string())),
        }
    }
    (requests, None)
}
