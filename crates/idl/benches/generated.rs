//! Generated types to bytes and back: a structure of ten members, 1,000 of them, and 1,000 doubles.
//!
//! `cargo bench -p punctual-idl --bench generated`. The other order of bytes is that of a foreign machine.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use punctual_giop::{ByteOrder, Decode, Decoder, Encode, Encoder, Error, Version};

#[path = "../tests/generated/figures.rs"]
mod figures;

use figures::figures::{Doubles, Ten, Tens};

fn ten(number: i64) -> Ten {
    let (a, b, c) = (-5, 6, number as f64);
    Ten { a, b, c, d: -2, e: 65_535, f: 1.5, g: true, h: 200, i: -number, j: 9 }
}

/// The bytes of a [`Ten`], part by part: what code without a layout does.
fn part_by_part(ten: &Ten, to: &mut Encoder) -> Result<(), Error> {
    ten.a.encode(to)?;
    ten.b.encode(to)?;
    ten.c.encode(to)?;
    ten.d.encode(to)?;
    ten.e.encode(to)?;
    ten.f.encode(to)?;
    ten.g.encode(to)?;
    ten.h.encode(to)?;
    ten.i.encode(to)?;
    ten.j.encode(to)
}

fn read_part_by_part(from: &mut Decoder<'_>) -> Result<Ten, Error> {
    Ok(Ten {
        a: Decode::decode(from)?,
        b: Decode::decode(from)?,
        c: Decode::decode(from)?,
        d: Decode::decode(from)?,
        e: Decode::decode(from)?,
        f: Decode::decode(from)?,
        g: Decode::decode(from)?,
        h: Decode::decode(from)?,
        i: Decode::decode(from)?,
        j: Decode::decode(from)?,
    })
}

const SWAPPED: ByteOrder = match ByteOrder::NATIVE {
    ByteOrder::Big => ByteOrder::Little,
    ByteOrder::Little => ByteOrder::Big,
};

/// Writes into the same memory each time.
fn write(
    criterion: &mut Criterion,
    name: &str,
    order: ByteOrder,
    encode: impl Fn(&mut Encoder) -> Result<(), Error>,
) -> Vec<u8> {
    let mut memory = Vec::with_capacity(1 << 20);
    criterion.bench_function(name, |bencher| {
        bencher.iter(|| {
            memory.clear();
            let mut to = Encoder::on(std::mem::take(&mut memory), order, Version::V1_2);
            encode(&mut to).expect("it has bytes");
            memory = black_box(to.into_bytes());
        });
    });
    memory
}

fn read<T>(
    criterion: &mut Criterion,
    name: &str,
    (bytes, order): (&[u8], ByteOrder),
    decode: impl Fn(&mut Decoder<'_>) -> Result<T, Error>,
) {
    criterion.bench_function(name, |bencher| {
        bencher.iter(|| decode(&mut Decoder::new(black_box(bytes), order, Version::V1_2)).expect("a value"));
    });
}

fn all(criterion: &mut Criterion) {
    let one = ten(1);
    let tens: Tens = (0..1_000).map(ten).collect();
    let doubles: Doubles = (0..1_000).map(f64::from).collect();
    for (order, suffix) in [(ByteOrder::NATIVE, ""), (SWAPPED, ", other order")] {
        let name = |what: &str| format!("{what}{suffix}");
        let bytes = write(criterion, &name("write ten members"), order, |to| black_box(&one).encode(to));
        read(criterion, &name("read ten members"), (&bytes, order), Ten::decode);
        let bytes = write(criterion, &name("write 1000 structures"), order, |to| black_box(&tens).encode(to));
        read(criterion, &name("read 1000 structures"), (&bytes, order), Tens::decode);
        let bytes = write(criterion, &name("write 1000 doubles"), order, |to| black_box(&doubles).encode(to));
        read(criterion, &name("read 1000 doubles"), (&bytes, order), Doubles::decode);
    }
    let order = ByteOrder::NATIVE;
    let bytes =
        write(criterion, "write ten members part by part", order, |to| part_by_part(black_box(&one), to));
    read(criterion, "read ten members part by part", (&bytes, order), read_part_by_part);
    let bytes = write(criterion, "write 1000 structures part by part", order, |to| {
        to.length(tens.len())?;
        black_box(&tens).iter().try_for_each(|ten| part_by_part(ten, to))
    });
    read(criterion, "read 1000 structures part by part", (&bytes, order), |from| {
        let count = from.length(1)?;
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(read_part_by_part(from)?);
        }
        Ok(all)
    });
}

criterion_group!(benches, all);
criterion_main!(benches);
