//! Files that no writer makes, and those of a writer with every word of them changed.

mod builder;
mod damage;
mod keys;
