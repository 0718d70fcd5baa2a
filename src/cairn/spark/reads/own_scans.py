"""Each scan of a query gets a Python source of its own, so that Spark may push filters into it.

Spark 4.3.0 keeps what a Python source took (the filters, the partitions, the reader) with the
data frame's source and not with the scan: a frame that was filtered once and is used again would
silently lack rows. A rule of the optimizer, right before filters are pushed, puts that right: it
gives each scan of `format("cairn")` a new source, and tells it that filters may be taken. It also
leaves out columns that the query does not use; Python sources cannot do that themselves.

The rule is Java, compiled when the session begins by the compiler that Spark brings along for its
own code. Where that fails (another version, Spark Connect) nothing is pushed, and all is as it was.
"""

from __future__ import annotations

import warnings
from typing import Any

INSTALLED = "spark.cairn.ownScans"
_CLASS = "cairn.OwnScans"
_JAVA = """
package cairn;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

public class OwnScans extends AbstractFunction1 {
  public Object apply(Object session) { return new OwnScansRule(); }
}

class OwnScansRule extends Rule {
  public TreeNode apply(TreeNode plan) { return walk((LogicalPlan) plan, null); }

  /** needed: the attributes that the operators above use; null: all. */
  LogicalPlan walk(LogicalPlan plan, AttributeSet needed) {
    if (plan instanceof DataSourceV2Relation) return owned((DataSourceV2Relation) plan, needed);
    AttributeSet below = null;
    if (plan instanceof Project) below = plan.references();
    else if (plan instanceof Filter && needed != null) below = needed.$plus$plus(plan.references());
    return (LogicalPlan) plan.mapChildren(new Walk(this, below));
  }

  LogicalPlan owned(DataSourceV2Relation found, AttributeSet needed) {
    if (!(found.table() instanceof PythonTable) || !"cairn".equals(found.table().name()))
      return found;
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName("cairn");
    Map options = new HashMap(found.options().asCaseSensitiveMap());
    if (conf().pythonFilterPushDown() && !found.options().containsKey("pushdown"))
      options.put("pushdown", "on");  // else Spark would refuse a source that takes filters
    StructType schema = found.table().schema();
    Seq output = found.output();
    if (needed != null && !found.options().containsKey("query")
        && schema.fields().length == output.size()) {
      StructType some = new StructType();
      Seq left = (Seq) output.take(0);
      for (int at = 0; at < output.size(); at++) {
        Attribute each = (Attribute) output.apply(at);
        if (!needed.contains(each)) continue;
        left = (Seq) left.appended(each);
        some = some.add(schema.fields()[at]);
      }
      if (left.isEmpty()) {  // rows are counted: one column tells how many there are
        left = (Seq) output.take(1);
        some = some.add(schema.fields()[0]);
      }
      output = left;
      schema = some;
    }
    return new DataSourceV2Relation(
        new PythonTable(source, "cairn", schema), output, found.catalog(), found.identifier(),
        new CaseInsensitiveStringMap(options), found.timeTravelSpec());
  }
}

class Walk extends AbstractFunction1 {
  private final OwnScansRule rule;
  private final AttributeSet needed;
  Walk(OwnScansRule rule, AttributeSet needed) { this.rule = rule; this.needed = needed; }
  public Object apply(Object child) { return rule.walk((LogicalPlan) child, needed); }
}
"""


def install(spark: Any) -> bool:
    """Puts the rule into a session, once; whether it is there."""
    if spark.conf.get(INSTALLED, "false") == "true":
        return True
    try:
        compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(spark._jsparkSession.getClass().getClassLoader())
        compiler.cook(_JAVA)
        made = compiler.getClassLoader().loadClass(_CLASS).getConstructor(None).newInstance(None)
        spark._jsparkSession.extensions().injectPreCBORule(made)
        spark.conf.set(INSTALLED, "true")
    except Exception as problem:  # of Java, or an attribute that Spark Connect does not have
        reason = str(problem).strip().partition("\n")[0]
        warnings.warn(f"Spark reads whole tables, its filters stay with it: {reason}", stacklevel=3)
        return False
    return True
