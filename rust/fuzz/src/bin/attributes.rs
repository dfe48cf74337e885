//! Fuzz target: any bytes as a record of attributes. What is accepted has no other encoding.
#![no_main]

use coregw_ops::folder::Attributes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(attributes) = Attributes::decode(data) {
        let record = attributes.record().expect("what is read can be written");
        assert_eq!(record.bytes, data);
        assert_eq!(Attributes::of_record(&record.target, Some(data)), Ok(attributes));
    }
});
