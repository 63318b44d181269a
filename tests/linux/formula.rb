# Runs a formula of Homebrew with stand-ins for what it calls: ruby formula.rb FORMULA BUILDPATH PREFIX
#
# The build by cargo is left out: BUILDPATH has the binary. Prints the text of `caveats`.
require "fileutils"
require "pathname"

FORMULA, BUILDPATH, PREFIX = ARGV.map { |argument| Pathname.new(argument) }

class Pathname
  def install(*sources)
    mkpath
    sources.flatten.each do |source|
      raise "#{source}: nothing to install" unless File.exist?(source)

      FileUtils.cp_r(source, self)
    end
    raise "#{self}: nothing is installed" if sources.flatten.empty?
  end
end

class Formula
  class << self
    attr_reader :values, :test_block

    %i[desc homepage url sha256 license depends_on].each do |name|
      define_method(name) { |value| ((@values ||= {})[name] ||= []) << value }
    end

    def test(&block)
      @test_block = block
    end
  end

  def version = self.class.values[:url].first[%r{/v([0-9.]+)/}, 1]
  def buildpath = BUILDPATH
  def prefix = PREFIX
  def bin = prefix/"bin"
  def man = prefix/"share/man"
  def bash_completion = prefix/"etc/bash_completion.d"
  def zsh_completion = prefix/"share/zsh/site-functions"
  def fish_completion = prefix/"share/fish/vendor_completions.d"

  def system(program, *arguments)
    return if program == "cargo" && arguments.include?("--locked")

    Kernel.system(program.to_s, *arguments.map(&:to_s)) || raise("#{program} #{arguments} failed")
  end

  def shell_output(command)
    output = `#{command}`
    raise "#{command} failed" unless $CHILD_STATUS.success?

    output
  end

  def assert_match(expected, text)
    raise "#{text}: no #{expected}" unless text.include?(expected)
  end
end

require "English"
load FORMULA.to_s
formula = Zarrfs.new
# Values of the environment are texts.
ENV.singleton_class.prepend(Module.new do
  def []=(name, value)
    super(name, value.to_s)
  end
end)
Dir.chdir(BUILDPATH) { formula.install }
FileUtils.mkdir_p(PREFIX/"test")
Dir.chdir(PREFIX/"test") { formula.instance_exec(&Zarrfs.test_block) }
puts formula.caveats
