//! Tests with files that no writer creates, and with valid files of which every word is changed.

mod builder;
mod damage;
mod keys;
