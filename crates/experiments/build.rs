//! Writes Rust for the interface that `orb-demux` calls to `OUT_DIR/demux.rs`.

fn main() -> Result<(), punctual_idl::BuildError> {
    punctual_idl::build("idl/demux.idl")
}
