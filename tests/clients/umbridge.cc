// What UM-Bridge's umbridge.h writes and reads, with its JSON library: nlohmann::json.
#include <iostream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

void write(const json& config, const std::vector<double>& input) {
  json request;
  request["name"] = "square";
  request["input"][0] = input;
  request["config"] = config;
  std::cout << request.dump();
}

// Print the outputs, or the message of the exception that umbridge.h raises.
void read(const std::string& body) {
  try {
    const json response = json::parse(body);
    if (response.contains("error")) {
      throw std::runtime_error(response["error"]["type"].get<std::string>() + ": " +
                               response["error"]["message"].get<std::string>());
    }
    std::vector<std::vector<double>> outputs;
    for (const json& output : response["output"]) outputs.push_back(output.get<std::vector<double>>());
    std::cout << json(outputs).dump();
  } catch (const std::exception& error) {
    std::cout << error.what();
  }
}

int main(int, char** arguments) {
  const std::string what = arguments[1];
  if (what == "read") read({std::istreambuf_iterator<char>(std::cin), {}});
  if (what == "write") write(json::object(), {0.1, -2});
  if (what == "write-empty") write(json(), {0.1, 1, 1, 1, 1, 1});
  if (what == "write-nonfinite") write({{"shape", {3}}}, {kNan, kInf, -kInf});
}
